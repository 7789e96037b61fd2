#!/usr/bin/env python3
"""The GPU benches' messages without a GPU and for wrong arguments, and their results beside
those of PyTorch. The programs are named by --bench (one each); those on the emulated device by
--emulated.

    bench/gpu/programs_test.py --bench build/bench/gpu_lookup_bench
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import embedding_bag  # pylint: disable=wrong-import-position

BENCHES = []
EMULATED = []
NO_GPU = dict(os.environ, CUDA_VISIBLE_DEVICES="-1")
TINY = ["--rounds", "1", "--repeats", "1", "--table-mib", "1", "--divide", "20000"]


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False,
                          env=NO_GPU)


class Programs(unittest.TestCase):

    def test_without_a_gpu_they_say_so_and_exit_3(self):
        for bench in BENCHES:
            done = run(bench)
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn("no CUDA device", done.stderr)
            self.assertEqual(done.stdout, "")

    def test_wrong_arguments_are_exit_2_and_the_usage(self):
        for bench in BENCHES + EMULATED:
            for arguments in (["--rounds", "0"], ["--rounds", "x"], ["--rounds"], ["--what", "1"]):
                done = run(bench, *arguments)
                self.assertEqual(done.returncode, 2, arguments)
                self.assertIn("usage:", done.stderr)

    def test_a_folder_that_is_not_there_is_an_error(self):
        for bench in EMULATED:
            for option, path in (("--write-ids", "/no/such"), ("--json", "/no/such/file")):
                done = run(bench, *TINY, "--only", "small_10", option, path)
                self.assertEqual(done.returncode, 2)
                self.assertIn("cannot write /no/such/", done.stderr)

    def test_results_and_ids_are_read_back(self):
        for bench in EMULATED:
            with tempfile.TemporaryDirectory() as folder:
                written = Path(folder) / "results.json"
                done = run(bench, *TINY, "--only", "small_10", "--json", written, "--write-ids",
                           folder)
                self.assertEqual(done.returncode, 0, done.stderr)
                results = json.loads(written.read_text())["results"]
                self.assertEqual(done.stdout.count("small_10"), len(results))
                workload = embedding_bag.read_workloads(Path(folder))["small_10"]
                self.assertEqual(workload["tables"], 10)
                self.assertLess(max(workload["ids"]), workload["rows"])
                measured = [r for r in results if not r["what"].startswith("ceiling")]
                self.assertEqual({r["ids"] for r in measured}, {len(workload["ids"])})
                for result in measured:
                    self.assertLessEqual(result["floor_bytes"], result["nominal_bytes"] * 2)
                    self.assertGreater(result["us"], 0)


class EmbeddingBag(unittest.TestCase):

    def test_without_torch_or_its_gpu_it_says_so_and_exits_3(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "workloads.jsonl").write_text("")
            results = Path(folder) / "results.json"
            results.write_text('{"results": []}')
            done = run(sys.executable, embedding_bag.__file__, folder, results)
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertRegex(done.stderr, "no PyTorch here|PyTorch sees no GPU")

    def test_ids_of_another_length_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "workloads.jsonl").write_text(json.dumps(
                {"name": "w", "tables": 2, "rows": 5, "dim": 4, "bags": 3, "bag_length": 1}))
            (Path(folder) / "w.ids").write_bytes(bytes(8 * 5))
            with self.assertRaisesRegex(SystemExit, "5 ids, expected 6"):
                embedding_bag.read_workloads(Path(folder))

    def test_our_results_meet_the_right_times(self):
        def result(what):
            return {"workload": "w", "what": what, "us": 10.0, "aim": "5 x torch"}
        results = [result(what) for what in (
            "ceiling: copy", "one launch", "by table, graph", "sgd, as one",
            "sgd, with lookup, graph", "rowwise adagrad, with lookup, graph")]
        rows = embedding_bag.compare(results, {("w", ""): 50.0, ("w", "sgd"): 200.0})
        self.assertEqual([(row[1], row[4]) for row in rows],
                         [("one launch", 5.0), ("by table, graph", 5.0),
                          ("sgd, with lookup, graph", 20.0)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", action="append", default=[])
    parser.add_argument("--emulated", action="append", default=[])
    options = parser.parse_args()
    BENCHES, EMULATED = options.bench, options.emulated
    unittest.main(argv=[sys.argv[0]])
