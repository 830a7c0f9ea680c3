"""The timeline of a job (DDL_TIMELINE): who was slow, and who waited for whom."""
