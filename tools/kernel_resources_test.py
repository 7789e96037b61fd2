#!/usr/bin/env python3
"""kernel_resources.py names kernels that cost too much: from a report, and from a real compiler.

With --nvcc PATH it also compiles a kernel that loads one row at a time and expects an error.
"""

import os
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import kernel_resources
import sass

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
# A loop of MoveKernel as nvcc made it once, without its stores and its third and fourth row: each
# row's slot is loaded, and waited for, behind the load of the row before. A caller without slots
# branches around both.
SLOT_BETWEEN_ROWS = """
        /*0200*/                   CS2R R12, SRZ ;
        /*0260*/               @P4 BRA 0x380 ;
        /*0290*/              @!P5 BRA 0x310 ;
        /*02d0*/                   IMAD.WIDE.U32 R2, R7, UR8, R2 ;
        /*02f0*/                   IMAD.MOV.U32 R12, RZ, RZ, R2 ;
        /*0300*/                   BRA 0x380 ;
        /*0310*/                   LDG.E R9, desc[UR6][R28.64] ;
        /*0320*/                   ISETP.NE.AND P0, PT, R9, -0x1, PT ;
        /*0350*/               @P0 IMAD.WIDE.U32 R2, R9, R10, R2 ;
        /*0370*/               @P0 IMAD.MOV.U32 R12, RZ, RZ, R2 ;
        /*0380*/                   BSYNC B0 ;
        /*03c0*/                   CS2R R8, SRZ ;
        /*03f0*/               @P0 LDG.E.128.CONSTANT R8, desc[UR6][R12.64] ;
        /*0490*/               @P1 BRA 0x5b0 ;
        /*04c0*/              @!P5 BRA 0x540 ;
        /*0500*/                   IMAD.WIDE.U32 R12, R3, UR8, R12 ;
        /*0520*/                   IMAD.MOV.U32 R16, RZ, RZ, R12 ;
        /*0530*/                   BRA 0x5b0 ;
        /*0540*/                   LDG.E R19, desc[UR6][R30.64] ;
        /*0550*/                   ISETP.NE.AND P1, PT, R19, -0x1, PT ;
        /*0580*/               @P1 IMAD.WIDE.U32 R14, R19, R12, R14 ;
        /*05a0*/               @P1 IMAD.MOV.U32 R16, RZ, RZ, R14 ;
        /*05b0*/                   BSYNC B0 ;
        /*0610*/               @P1 LDG.E.128.CONSTANT R12, desc[UR6][R16.64] ;
        /*0ba0*/                   FADD R9, R9, R13 ;
        /*0ca0*/              @!P6 BRA 0x200 ;
        /*0cb0*/                   EXIT ;
"""
# The same with both slots first, the second of which is waited for behind the first row's load.
SLOTS_FIRST = """
        /*0200*/                   LDG.E R20, desc[UR6][R28.64] ;
        /*0210*/                   LDG.E R21, desc[UR6][R30.64] ;
        /*0220*/                   IMAD.WIDE.U32 R16, R20, R5, R2 ;
        /*0230*/                   LDG.E.128.CONSTANT R8, desc[UR6][R16.64] ;
        /*0240*/                   IMAD.WIDE.U32 R18, R21, R5, R2 ;
        /*0250*/                   LDG.E.128.CONSTANT R12, desc[UR6][R18.64] ;
        /*0260*/                   FADD R9, R9, R13 ;
        /*0270*/              @!P6 BRA 0x200 ;
        /*0280*/                   EXIT ;
"""
# A row that is read in words or else by elements, which are put together one by one; then another.
WORDS_OR_ELEMENTS = """
        /*0200*/               @P0 BRA 0x240 ;
        /*0210*/                   LDG.E.U16 R8, desc[UR6][R16.64] ;
        /*0220*/                   IMAD.U32 R8, R8, 0x10000, RZ ;
        /*0230*/                   BRA 0x250 ;
        /*0240*/                   LDG.E.128 R8, desc[UR6][R16.64] ;
        /*0250*/                   LDG.E.128 R12, desc[UR6][R18.64] ;
        /*0260*/                   FADD R9, R9, R13 ;
        /*0270*/              @!P6 BRA 0x200 ;
"""
ROW = {"kernel": "PoolKernel<fp32, true>", "registers_min": 40, "registers_max": 64,
       "wide_loads_min": 2, "wide_stores_min": 1}


# 32 warps of 64 registers with 4 loads have 64 KB in flight.
IN_FLIGHT = {"memory": {"bytes_per_second": 4.8e12, "latency_seconds": 8e-7,
                        "multiprocessors": 132},
             "bounds": [{"kernel": "PoolKernel<fp32, true>", "in_flight": [4, 4]}]}


def kernels(report=REPORT, ptx=PTX):
    return kernel_resources.kernels_of("pool.cu", report, ptx)


class KernelResources(unittest.TestCase):
    def problems(self, found, *rows):
        return "\n".join(kernel_resources.check(found, rows or [ROW]))

    def test_a_kernel_inside_its_bounds_is_no_problem(self):
        self.assertEqual(self.problems(kernels()), "")

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


class LoadsInFlight(unittest.TestCase):

    def test_an_index_load_between_row_loads_is_waited_for(self):
        self.assertEqual(sass.loads_in_flight(SLOT_BETWEEN_ROWS), [1, 1])

    def test_rows_whose_indices_are_loaded_first_are_in_flight_together(self):
        self.assertEqual(sass.loads_in_flight(SLOTS_FIRST), [2])

    def test_the_use_of_a_row_ends_a_run_and_so_does_a_load_into_its_registers(self):
        for use in ("FADD R0, R0, R11", "STG.E.128 desc[UR6][R2.64], R8", "DADD R4, R10, R4",
                    "LDG.E.128 R8, desc[UR6][R18.64]", "LDG.E R6, desc[UR6][R10.64]"):
            code = SLOTS_FIRST.replace("IMAD.WIDE.U32 R18, R21, R5, R2", use)
            self.assertEqual(sass.loads_in_flight(code)[-1], 1, use)

    def test_other_registers_end_no_run(self):
        for use in ("FADD R0, R0, R12", "STG.E.64 desc[UR6][R2.64], R6", "IADD3 R7, R7, 0x8, RZ"):
            code = SLOTS_FIRST.replace("IMAD.WIDE.U32 R18, R21, R5, R2", use)
            self.assertEqual(sass.loads_in_flight(code), [2], use)

    def test_of_words_and_elements_words_count(self):
        self.assertEqual(sass.loads_in_flight(WORDS_OR_ELEMENTS), [2])

    def test_loads_on_paths_that_exclude_each_other_are_counted_once(self):
        both = WORDS_OR_ELEMENTS.replace("LDG.E.U16 R8", "LDG.E.128 R20").replace(
            "IMAD.U32 R8, R8, 0x10000, RZ", "NOP").replace(
            "@P0 BRA 0x240 ;", "LDG.E.128 R4, desc[UR6][R18.64] ; /*0208*/ @P0 BRA 0x240 ;")
        self.assertEqual(sass.loads_in_flight(both), [3])

    def test_loads_outside_of_loops_do_not_count(self):
        self.assertEqual(sass.loads_in_flight(SLOTS_FIRST.replace("BRA 0x200", "NOP")), [])

    def in_flight(self, runs, table=None):
        pool = kernel_resources.Kernel("PoolKernel<fp32, true>", "pool.cu", 64, 0, 0)
        pool.loads_in_flight = runs
        lines, problems = kernel_resources.check_in_flight([pool], table or IN_FLIGHT)
        return "\n".join(lines), "\n".join(problems)

    def test_every_loop_has_its_loads_in_flight(self):
        self.assertEqual(self.in_flight([5, 4])[1], "")
        for runs in ([4, 3], [4], [5, 4, 1]):
            self.assertIn("PoolKernel<fp32, true> has", self.in_flight(runs)[1])

    def test_too_few_bytes_in_flight_are_named(self):
        few = dict(IN_FLIGHT, bounds=[{"kernel": "Pool.*", "in_flight": [1]}])
        self.assertEqual(self.in_flight([2], few)[1], "")
        self.assertIn("has 16384 bytes in flight on a multiprocessor, and 29091 are asked for",
                      self.in_flight([1], few)[1])

    def test_the_table_has_the_figures(self):
        self.assertIn("| `PoolKernel<fp32, true>` | 5, 4 | 64 | 32 | 65.5 |",
                      self.in_flight([5, 4])[0])

    def test_blocks_are_whole(self):
        self.assertEqual([kernel_resources.warps_of(r) for r in (32, 40, 64, 65, 80, 128, 16)],
                         [64, 48, 32, 24, 24, 16, 64])

    def test_without_cuobjdump_it_is_skipped(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.dict(os.environ, PATH=folder):
            self.assertEqual(kernel_resources.main(
                ["kernels/cuda/resources.toml", "--nvcc", f"{folder}/nvcc", "--measured", folder,
                 "--in-flight"]), 77)


NVCC = None
if __name__ == "__main__":
    if "--nvcc" in sys.argv:
        at = sys.argv.index("--nvcc")
        NVCC = sys.argv[at + 1]
        del sys.argv[at:at + 2]
    unittest.main()
