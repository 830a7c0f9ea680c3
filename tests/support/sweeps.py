"""Long sweeps of the recipes' tests: further sizes, shares and numbers of ranks of one behaviour.

They stand here and not as a mark beside the tests: those are in a package's digest, and a mark
would have the package built again.
"""

from __future__ import annotations

#: Room → pytest's names of the cases that only `make test-full` runs.
SWEEPS: dict[str, tuple[str, ...]] = {
    "lms-torch/tests": (
        *(f"test_engine.py::test_gradients_and_limit[{share}]" for share in (0.9, 0.6, 0.5)),
        "test_engine.py::test_with_checkpointing[True]",
        *(f"test_unusual.py::test_packed_sequences[{share}]" for share in (0.98, 0.9)),
        *(
            f"test_unusual.py::test_what_no_backward_uses_leaves_room[{kind}-{share}]"
            for kind in ("watched", "kept", "early", "late", "before backward")
            for share in (0.9, 0.5)
        ),
        # Each starts a Python with PyTorch; another size and another name are refused alike.
        *(
            f"test_session.py::test_mistakes_on_the_command_line[{words}]"
            for words in (
                "words0-limit 'many' is no size in bytes",
                "words2-there is no function large:nothing: ",
            )
        ),
    ),
    "ddl-tensorflow/tests": ("test_ends.py::test_a_rank_leaves_by_sys_exit[3]",),
    "ddl/tests/ranks": (
        *(f"test_async.py::test_every_result_is_exact[{n}]" for n in ("2-0-9000", "4-0-9000")),
        "test_async.py::test_every_result_is_exact[4-3-0]",
        "test_async.py::test_a_burst_takes_fewer_messages[2-0]",
        *(
            f"test_async.py::test_async_disagreement_is_an_error_everywhere[{n}]"
            for n in ("2-0", "4-0")
        ),
        *(f"test_collectives.py::test_sockets_are_summed_first[{n}]" for n in ("4-0-2", "5-0-2")),
        *(f"test_collectives.py::test_collectives_follow_a_topology[{n}]" for n in ("2-2", "3-3")),
        *(
            f"test_collectives.py::test_sums_are_rounded_once_per_level_in_order[{n}]"
            for n in ("2-0", "3-0", "2-2")
        ),
        "test_direct.py::test_every_byte_arrives_at_its_rank[2-0]",
        "test_direct.py::test_tensors[1]",
        *(
            f"test_failures.py::test_a_killed_rank_on_another_host_is_named_by_all[{n}]"
            for n in ("2-2", "6-6")
        ),
        "test_failures.py::test_a_stuck_rank_is_named_after_the_timeout[6-6]",
        "test_failures.py::test_a_rank_that_leaves_early_is_named[2]",
        "test_failures.py::test_an_uncaught_exception_ends_the_job[2-0]",
        "test_failures.py::test_a_rank_that_does_not_start_the_library_is_named[0]",
        # On one rank; on two they all are, and one of them on one.
        *(
            f"test_failures.py::test_starting_and_ending[1-{way}]"
            for way in (
                *("at exit", "rank 0 goes on alone", "by DDL_OPTIONS", "not at all", "again"),
                *("bad options, then good", "fork", "trace"),
            )
        ),
        "test_failures.py::test_bad_arguments[1]",
        "test_storm.py::test_one_fault[3-0-kill]",
        "test_storm.py::test_one_fault[4-2-stop]",
    ),
}


def without_sweeps(room: str) -> list[str]:
    """Options of pytest that leave the long sweeps of a room out."""
    return [f"--deselect={name}" for name in SWEEPS.get(room, ())]
