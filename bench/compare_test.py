#!/usr/bin/env python3
"""The arithmetic of bench/compare.py, and whole runs over builds that only print figures."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import compare


def series(old, new, again):
    return compare.Series(list(old), list(new), list(again))


class Arithmetic(unittest.TestCase):
    def test_the_ratio_is_the_median_of_the_rounds_ratios(self):
        self.assertAlmostEqual(series([1, 2, 4], [1, 1, 4.4], [1, 2, 4]).ratio(), 1.0)

    def test_the_spread_is_the_quartiles_of_the_old_build_against_itself(self):
        s = series([10] * 5, [10] * 5, [8, 9, 10, 11, 12])
        self.assertEqual(s.spread(), (0.9, 1.1))

    def test_slower_is_worse_only_outside_the_spread(self):
        quiet, noisy = [100, 99, 101], [100, 80, 120]
        slow = [90, 91, 92]
        self.assertTrue(compare.is_worse("rate", series([100] * 3, slow, quiet)))
        self.assertFalse(compare.is_worse("rate", series([100] * 3, slow, noisy)))
        self.assertFalse(compare.is_worse("rate", series([100] * 3, [98] * 3, [100] * 3)))

    def test_more_cpu_is_worse_whatever_the_spread(self):
        self.assertTrue(compare.is_worse("cpu", series([1.0] * 3, [1.05] * 3, [0.8, 1, 1.2])))
        self.assertFalse(compare.is_worse("cpu", series([1.0] * 3, [1.02] * 3, [1] * 3)))

    def test_every_program_has_its_figures(self):
        rounds = json.dumps({"question": "?", "results": [
            {"setting": "dim:64", "what": "read, prefetch 8", "ratio": 1.0},
            {"setting": "dim:64", "what": "pool", "rows_per_second": 5.0, "ratio": 0.9}]})
        moves = json.dumps({"move_bytes_per_second": 9.0, "of_grpc_unary": 0.8, "updates": 0})
        planner = ("\n| scenario | gap % | time ms | plan / TorchRec |\n|---|---|---|---|\n"
                   "| seed | 0.1 | 250.0 | 0.9 |\n| broken | why |\n\npeak memory: 1 MiB\n")
        service = json.dumps({"cases": [
            {"name": "lookup", "rows_per_second": 7.0,
             "client_cpu_seconds_per_million_rows": 0.25,
             "server_cpu_seconds_per_million_rows": 0.5},
            {"name": "idle", "rows_per_second": 0.0}]})
        self.assertEqual(compare.figures_of("p", rounds), {("p/dim:64/pool", "ratio"): 0.9})
        self.assertEqual(compare.figures_of("p", moves), {("p/bytes", "rate"): 9.0})
        self.assertEqual(compare.figures_of("planner_bench", planner),
                         {("planner_bench/seed", "rate"): 4.0})
        self.assertEqual(compare.figures_of("p", service),
                         {("p/lookup", "rate"): 7.0, ("p/lookup", "cpu"): 0.75})


class WholeRuns(unittest.TestCase):
    def compare(self, old, new, *more):
        """Exit code and output for builds whose embla-bench says (rows per second, CPU)."""
        with tempfile.TemporaryDirectory() as folder:
            for name, (rate, cpu) in {"old": old, "new": new}.items():
                program = Path(folder, name, "bin", "embla-bench")
                program.parent.mkdir(parents=True)
                case = {"name": "lookup", "rows_per_second": rate,
                        "server_cpu_seconds_per_million_rows": cpu}
                program.write_text(f"#!/bin/sh\necho '{json.dumps({'cases': [case]})}'\n")
                program.chmod(0o755)
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                code = compare.main([f"{folder}/old", f"{folder}/new", "--rounds", "3", *more])
            return code, out.getvalue()

    def test_the_same_figures_are_no_difference(self):
        code, out = self.compare((100, 1.0), (100, 1.0))
        self.assertEqual(code, 0, out)
        self.assertIn("2 figures of 3 rounds, 0 worse", out)
        self.assertIn("zch_bench is not built", out)

    def test_slower_and_more_cpu_are_named(self):
        code, out = self.compare((100, 1.0), (90, 1.0))
        self.assertEqual(code, 1)
        self.assertRegex(out, r"embla-bench/lookup\s+rate\s+0\.900 .*WORSE")
        code, out = self.compare((100, 1.0), (100, 1.1))
        self.assertEqual(code, 1)
        self.assertRegex(out, r"embla-bench/lookup\s+cpu\s+1\.100 .*WORSE")

    def test_a_filter_that_nothing_has_is_an_error(self):
        self.assertEqual(self.compare((1, 1), (1, 1), "lookup")[0], 0)
        self.assertEqual(self.compare((1, 1), (1, 1), "embla-bench")[0], 0)
        self.assertEqual(self.compare((1, 1), (1, 1), "nonsense")[0], 2)


if __name__ == "__main__":
    unittest.main()
