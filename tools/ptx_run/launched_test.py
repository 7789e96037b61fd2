#!/usr/bin/env python3
"""launched.py names the kernels that no program launches."""

import unittest

import launched


class Launched(unittest.TestCase):

    def test_a_kernel_may_be_launched_by_any_program(self):
        self.assertEqual(launched.idle(["launched A\nnever B\n", "never A\nlaunched B\n"]), ([], 2))

    def test_a_kernel_that_no_program_launches_is_named(self):
        self.assertEqual(launched.idle(["launched A\nnever B\n", "never A\nnever B\nnever C\n"]),
                         (["B", "C"], 3))

    def test_a_program_without_kernels_is_none(self):
        self.assertEqual(launched.idle([""]), ([], 0))


if __name__ == "__main__":
    unittest.main()
