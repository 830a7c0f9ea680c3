"""The one door to rattler: rendering, building, indexing, solving, installing.

Nothing outside this package imports `rattler` or `rattler_build`.
"""
