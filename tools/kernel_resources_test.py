#!/usr/bin/env python3
"""kernel_resources.py names kernels that cost too much: from a report, and from a real compiler.

With --nvcc PATH it also compiles a kernel that loads one row at a time and expects an error.
"""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import kernel_resources

MANGLED = ("_ZN5embla7kernels4cuda12_GLOBAL__N_110PoolKernelILNS0_7ElementE1ELb1EEEvNS0_4RowsENS1_"
           "10DeviceBagsENS0_6OutputENS1_8RowShapeE")
REPORT = f"""ptxas info    : 1 bytes gmem
ptxas info    : Compiling entry function '{MANGLED}' for 'sm_90'
ptxas info    : Function properties for {MANGLED}
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 60 registers, used 0 barriers
"""
PTX = f"""
.visible .entry {MANGLED}(
\t.param .align 8 .b8 p[32]
)
{{
\tld.global.nc.v4.u32 \t{{%r1,%r2,%r3,%r4}}, [%rd1];
\tld.global.nc.v4.u32 \t{{%r1,%r2,%r3,%r4}}, [%rd1];
\tld.global.nc.u32 \t%r1, [%rd1];
\tst.global.cs.v4.u32 \t[%rd1], {{%r1,%r2,%r3,%r4}};
}}
"""
SASS = f"""
\t\tFunction : {MANGLED}
        /*08b0*/  @P1 LDG.E.128.CONSTANT R16, desc[UR8][R28.64] ;
        /*08c0*/  @P1 LDG.E.128.CONSTANT R16, desc[UR8][R28.64] ;
        /*0900*/      LDG.E.64.CONSTANT R8, desc[UR8][R2.64] ;
        /*0910*/      STG.E.EF.128 desc[UR8][R2.64], R4 ;
"""
ROW = {"kernel": "PoolKernel<fp32, true>", "registers_min": 40, "registers_max": 64,
       "wide_loads_min": 2, "wide_stores_min": 1}


def kernels(report=REPORT, ptx=PTX):
    return kernel_resources.kernels_of("pool.cu", report, (ptx, kernel_resources.PTX_ENTRY),
                                       kernel_resources.WIDE_PTX)


class KernelResources(unittest.TestCase):
    def problems(self, found, *rows):
        return "\n".join(kernel_resources.check(found, rows or [ROW]))

    def test_a_kernel_inside_its_bounds_is_no_problem(self):
        self.assertEqual(self.problems(kernels()), "")

    def test_machine_code_counts_like_ptx(self):
        found = kernel_resources.kernels_of("pool.cu", REPORT,
                                            (SASS, kernel_resources.SASS_FUNCTION),
                                            kernel_resources.WIDE_SASS)
        self.assertEqual(found, kernels())

    def test_a_lost_wide_load_is_named(self):
        narrow = PTX.replace("ld.global.nc.v4.u32", "ld.global.nc.v2.u32", 1)
        self.assertIn("PoolKernel<fp32, true> has 1 wide_loads, at least 2",
                      self.problems(kernels(ptx=narrow)))

    def test_a_lost_wide_store_is_named(self):
        narrow = PTX.replace("st.global.cs.v4.u32", "st.global.cs.u32")
        self.assertIn("has 0 wide_stores, at least 1", self.problems(kernels(ptx=narrow)))

    def test_spills_are_named(self):
        spilled = REPORT.replace("0 bytes stack frame, 0 bytes spill stores",
                                 "24 bytes stack frame, 16 bytes spill stores")
        self.assertIn("has 24 bytes of stack and spills 16, at most 0",
                      self.problems(kernels(report=spilled)))

    def test_too_many_and_too_few_registers_are_named(self):
        for used, wanted in ((65, "at most 64"), (32, "at least 40")):
            report = REPORT.replace("Used 60", f"Used {used}")
            self.assertIn(f"has {used} registers, {wanted}", self.problems(kernels(report=report)))

    def test_a_kernel_without_a_row_and_a_row_without_a_kernel_are_named(self):
        other = dict(ROW, kernel="GatherKernel<.*>")
        text = self.problems(kernels(), other)
        self.assertIn("PoolKernel<fp32, true> has no row", text)
        self.assertIn("no kernel is called GatherKernel<.*>", text)

    def test_a_trap_is_named(self):
        self.assertEqual(kernel_resources.traps_of(PTX), [])
        for trap in ("\ttrap;\n", "\t@%p12 trap;\n"):
            self.assertEqual(kernel_resources.traps_of(PTX.replace("}\n", trap + "}\n")),
                             ["PoolKernel<fp32, true>"])

    def test_a_compiled_trap_writes_no_file(self):
        if NVCC is None:
            self.skipTest("no --nvcc")
        source = ("#include <algorithm>\nnamespace embla {\n"
                  "inline constexpr float kMost = 16.0f;\n"
                  "constexpr float AtMost(float v) { return %s; }\n"
                  "__global__ void K(float* p) { *p = AtMost(*p); }\n}\n")
        compare = "kMost < v ? kMost : v"
        with tempfile.TemporaryDirectory() as folder:
            planted, into = Path(folder) / "k.cu", Path(folder) / "k.json"
            compile_it = ["kernels/cuda/resources.toml", "--nvcc", NVCC, "--compile", str(planted),
                          "--into", str(into)]
            planted.write_text(source % "std::min(v, kMost)")
            with self.assertRaisesRegex(SystemExit, r"k\.cu: embla::K is compiled to a trap"):
                kernel_resources.main(compile_it)
            self.assertFalse(into.exists())
            planted.write_text(source % compare)
            self.assertEqual(kernel_resources.main(compile_it), 0)
            self.assertTrue(into.exists())

    def test_a_kernel_with_one_load_in_flight_is_caught(self):
        if NVCC is None:
            self.skipTest("no --nvcc")
        source = Path("kernels/cuda/pool.cu").read_text()
        slow = source.replace("kInFlight = 4;", "kInFlight = 1;")
        self.assertNotEqual(slow, source)
        with tempfile.TemporaryDirectory() as folder:
            planted = Path(folder) / "pool.cu"
            planted.write_text(slow)
            result = kernel_resources.main(["kernels/cuda/resources.toml", "--nvcc", NVCC,
                                            "--only", str(planted)])
        self.assertEqual(result, 1)


NVCC = None
if __name__ == "__main__":
    if "--nvcc" in sys.argv:
        at = sys.argv.index("--nvcc")
        NVCC = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
