#!/usr/bin/env python3
"""The arithmetic and the table of bench/peers/peers.py, and whole runs over systems of a few lines
that answer at once."""

import contextlib
import io
import shlex
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import peers

# Answers every case by its first argument, rows per second, and notes what it was asked.
FAKE = """
import json, sys
rate, notes = float(sys.argv[1]), sys.argv[2]
print("READY", flush=True)
for line in sys.stdin:
    with open(notes, "a") as file:
        file.write(f"{sys.argv[1]} {line}")
    print(json.dumps({"rows_per_second": rate, "p50_ms": 2}), flush=True)
"""


def figures(*rates):
    return [peers.Figure(rate, 1.0) for rate in rates]


class Answer(unittest.TestCase):
    def test_a_line_of_json_is_a_figure(self):
        line = '{"rows_per_second": 4e6, "p50_ms": 0.95}\n'
        self.assertEqual(peers.parse_answer(line), peers.Figure(4e6, 0.95))

    def test_anything_else_is_refused(self):
        for line in (
            "",
            "READY\n",
            "[]\n",
            "3\n",
            '{"rows_per_second": 4e6}\n',
            '{"rows_per_second": 0, "p50_ms": 1}\n',
            '{"rows_per_second": NaN, "p50_ms": 1}\n',
        ):
            with self.subTest(line), self.assertRaises(ValueError):
                peers.parse_answer(line)


class Arithmetic(unittest.TestCase):
    def test_the_ratio_is_the_median_of_the_rounds_ratios(self):
        self.assertAlmostEqual(peers.median_ratio(figures(1, 4, 9), figures(1, 2, 3)), 2.0)

    def test_a_step_takes_as_long_as_its_lookup_and_its_update(self):
        step = peers.step_of(peers.Figure(6e6, 2.0), peers.Figure(3e6, 4.0))
        self.assertAlmostEqual(step.rows_per_second, 2e6)
        self.assertAlmostEqual(step.p50_ms, 6.0)

    def test_every_round_begins_with_another_system(self):
        self.assertEqual(
            [peers.turns(["a", "b", "c"], n)[0] for n in range(4)], ["a", "b", "c", "a"]
        )

    def test_the_widest_instruction_set_is_named(self):
        self.assertEqual(peers.instruction_set("flags\t\t: sse2 avx2 avx512f\n"), "AVX-512")
        self.assertEqual(peers.instruction_set("model: x\nflags\t: sse2 avx2\n"), "AVX2")
        self.assertEqual(peers.instruction_set("flags : sse2\n"), "neither AVX2 nor AVX-512")


class Workloads(unittest.TestCase):
    def test_a_step_comes_after_what_it_is_made_of(self):
        for name, workload in peers.WORKLOADS.items():
            with self.subTest(name):
                for number, (operation, in_flight) in enumerate(workload.cases):
                    if operation == "step":
                        before = workload.cases[:number]
                        self.assertIn(("lookup", in_flight), before)
                        self.assertIn(("rowwise_adagrad", in_flight), before)

    def test_bags_divide_the_ids(self):
        for name, workload in peers.WORKLOADS.items():
            with self.subTest(name):
                self.assertEqual(workload.ids % workload.bag, 0)

    def test_only_bf16_lookups_are_compared(self):
        for name, workload in peers.WORKLOADS.items():
            if workload.dtype != "fp32":
                with self.subTest(name):
                    self.assertEqual({operation for operation, _ in workload.cases}, {"lookup"})


class Table(unittest.TestCase):
    def test_a_line_has_medians_and_a_dash_for_what_was_not_measured(self):
        found = {
            "embla": [peers.Figure(2e6, 1.0), peers.Figure(4e6, 3.0), peers.Figure(6e6, 2.0)],
            "redis": figures(1e6, 1e6, 1e6),
        }
        line = peers.table_line("w1", ("lookup", 4), found, ["ps-lite", "redis"])
        self.assertEqual(line.split(), ["w1", "lookup", "4", "4.00", "2.000", "-", "4.00"])

    def test_the_heading_is_as_wide_as_the_lines(self):
        line = peers.table_line("w1", ("lookup", 1), {"embla": figures(1e6)}, peers.PEERS)
        self.assertEqual(len(peers.heading(peers.PEERS)), len(line))


class WholeRun(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.notes = self.folder / "notes"

    def command(self, program, *arguments):
        script = self.folder / "fake.py"
        script.write_text(program)
        return shlex.join([sys.executable, str(script), *arguments])

    def fake(self, rate):
        return self.command(FAKE, rate, str(self.notes))

    def run_peers(self, *arguments):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            peers.main(["--logs", str(self.folder), *arguments])
        return output.getvalue().splitlines()

    def compare(self, embla_rate, peer, workload, rounds=1):
        """A run of Embla beside a peer of a million rows a second."""
        systems = {"embla": self.fake(embla_rate), peer: self.fake("1e6")}
        stated = [f"--system={name}={command}" for name, command in systems.items()]
        return self.run_peers(*stated, "--workloads", workload, "--rounds", str(rounds))

    def test_systems_are_asked_in_turn_and_compared(self):
        lines = self.compare("3e6", "redis", "w3", rounds=2)
        self.assertEqual(
            lines[-3].split(), ["w3", "lookup", "1", "3.00", "2.000", "-", "-", "3.00", "-"]
        )
        self.assertEqual(len(lines[-3:]), 3)
        asked = [line.split() for line in self.notes.read_text().splitlines()]
        self.assertEqual([line[0] for line in asked], ["3e6", "1e6"] * 3 + ["1e6", "3e6"] * 3)
        self.assertEqual(asked[0][1:4], ["CASE", "lookup", "1"])

    def test_a_peer_is_left_out_of_workloads_that_are_not_its_own(self):
        lines = self.compare("3e6", "redis", "w4")
        self.assertEqual([line.split()[-4:] for line in lines[-2:]], [["-"] * 4] * 2)

    def test_embla_s_step_is_made_of_its_lookup_and_update(self):
        lines = self.compare("4e6", "torchrec", "w2")
        self.assertEqual(
            lines[-1].split(), ["w2", "step", "1", "2.00", "4.000", "-", "-", "-", "2.00"]
        )

    def test_a_system_that_does_not_verify_ends_the_run_with_its_log(self):
        broken = self.command("import sys; sys.exit('a lookup has wrong rows')")
        with self.assertRaises(SystemExit) as ended:
            self.run_peers("--system", f"embla={broken}", "--workloads", "w3")
        self.assertIn("embla did not verify", str(ended.exception))
        self.assertIn("a lookup has wrong rows", str(ended.exception))

    def test_a_system_that_ends_in_a_case_ends_the_run(self):
        broken = self.command("print('READY', flush=True); input()")
        with self.assertRaises(SystemExit) as ended:
            self.run_peers("--system", f"embla={broken}", "--workloads", "w3")
        self.assertIn("has no figure for lookup, 1 in flight", str(ended.exception))


if __name__ == "__main__":
    unittest.main()
