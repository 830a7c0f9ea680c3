"""Every case on 1, 2 and 4 real ranks; cases.py has the cases themselves."""

from rank_cases import (  # noqa: F401
    outcome,
    pytest_generate_tests,
    test_case,
    test_every_file_has_cases,
    test_the_run_ends_well,
)
