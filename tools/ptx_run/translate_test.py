#!/usr/bin/env python3
"""translate.py refuses what it does not know."""

import unittest

import translate

KERNEL = """
.visible .entry Kernel(
\t.param .u64 Kernel_param_0,
\t.param .align 8 .b8 Kernel_param_1[12]
)
{
\t.reg .b32 \t%r<3>;
\t.reg .b64 \t%rd<3>;
\t.reg .pred \t%p<2>;

BODY
}
"""


def translated(body):
    return translate.translate(KERNEL.replace("BODY", body))


class Translate(unittest.TestCase):

    def test_parameters_lie_as_their_alignment_asks(self):
        out = translated("\tld.param.u32 \t%r1, [Kernel_param_1+8];\n\tret;")
        self.assertIn("{{0, 8}, {8, 12}}", out)
        self.assertIn("(AddressOf(parameters + 8) + 8)", out)

    def test_a_predicate_guards_its_instruction(self):
        out = translated("\t@!%p1 add.s32 \t%r1, %r2, -1;")
        self.assertIn("if (!p1) { r1 = Add<std::int32_t>(r2, -1ll); }", out)

    def test_comparisons_say_what_nan_is(self):
        self.assertIn("p1 = Compare<float, std::less<>, false>(r1, r2);",
                      translated("\tsetp.lt.f32 \t%p1, %r1, %r2;"))
        self.assertIn("p1 = Compare<float, std::greater_equal<>, true>(r1, r2);",
                      translated("\tsetp.geu.f32 \t%p1, %r1, %r2;"))

    def test_unknown_instructions_and_forms_are_errors(self):
        for line in ("bar.sync 0;", "add.rz.f32 %r1, %r1, %r2;", "ld.shared.u32 %r1, [%rd1];",
                     "shfl.sync.up.b32 %r1|%p1, %r2, 1, 0, -1;", "mov.u32 %r1, %clock;",
                     "cvt.rzi.s32.f32 %r1, %r2;", "red.global.add.f32 [%rd1], %r1;"):
            with self.assertRaises(translate.Unknown, msg=line):
                translated("\t" + line)

    def test_an_entry_of_another_form_is_an_error(self):
        with self.assertRaises(translate.Unknown):
            translate.translate(".visible .entry Odd ( .param .u64 x ) { ret; }")


if __name__ == "__main__":
    unittest.main()
