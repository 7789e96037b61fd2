"""Plants one violation at a time in a small house and expects tidy to name it."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tidy

LAYERS = """
[rooms]
"low" = { deps = [] }
"high" = { deps = ["low"], tests = ["side"] }
"side" = { deps = ["low"] }
"client/include" = { deps = [] }
[[headers]]
include = "grpcpp/"
files = ["high/*"]
why = "gRPC stays at the edges"
"""

CLEAN = {
    "tools/layers.toml": LAYERS,
    "low/CMakeLists.txt": "embla_library(low SRCS a.cc HDRS a.h)\nembla_test(t SRCS a_test.cc)\n",
    "low/a.h": "#pragma once\n#include <string>\nint A();\n",
    "low/a.cc": '#include "low/a.h"\n\n#include <vector>\n\nint A() { return 1; }\n',
    "low/a_test.cc": '#include "low/a.h"\n',
    "high/CMakeLists.txt": "embla_library(high SRCS b.cc b_test.cc)\n",
    "high/b.cc": '#include "low/a.h"\n#include <grpcpp/grpcpp.h>\n',
    "high/b_test.cc": '#include "side/c.h"\n',
    "side/CMakeLists.txt": "embla_library(side HDRS c.h)\n",
    "side/c.h": "#pragma once\n",
    "client/include/CMakeLists.txt": "embla_library(client HDRS embla/client.h)\n",
    "client/include/embla/client.h": '#pragma once\n#include <span>\n#include "absl/a.h"\n',
}


def findings(**changes):
    """tidy's findings on CLEAN with some files replaced or added."""
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**CLEAN, **changes}.items():
            file = Path(root, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return tidy.check_all(root)[0]


class TidyTest(unittest.TestCase):
    def expect(self, path, part, text, is_error=True):
        found = findings(**{path: text})
        hits = [f for f in found if f.path == path and part in f.message]
        self.assertTrue(hits, f"{part!r} not in {[str(f) for f in found]}")
        self.assertEqual(hits[0].is_error, is_error)

    def expect_clean(self, path, text):
        self.assertEqual([str(f) for f in findings(**{path: text})], [])

    def test_clean_house(self):
        self.assertEqual([str(f) for f in findings()], [])

    def test_upward_include(self):
        self.expect("low/a.h", "low may not include high", '#pragma once\n#include "high/b.h"\n')

    def test_side_include_is_for_tests_only(self):
        self.expect("high/b.cc", "high may not include side", '#include "side/c.h"\n')

    def test_generated_and_public_headers_have_a_room(self):
        self.expect("low/a.cc", "may not include proto",
                    '#include "low/a.h"\n#include "embla/v1/x.pb.h"\n')
        self.expect("low/a.cc", "may not include client/include",
                    '#include "low/a.h"\n#include "embla/client.h"\n')

    def test_device_code_takes_no_addresses_of_constants(self):
        header = "#pragma once\n#include <string>\ninline int A() { return std::min(1, 2); }\n"
        self.expect_clean("low/a.h", header)  # Host code only, so far.
        kernel = {"low/k.cu": '#include "low/b.cuh"\n',
                  "low/b.cuh": '#pragma once\n#include "low/a.h"\n',
                  "low/CMakeLists.txt": CLEAN["low/CMakeLists.txt"] + "f(k.cu b.cuh)\n"}
        self.assertEqual([str(f) for f in findings(**kernel)], [])
        found = [str(f) for f in findings(**kernel, **{"low/a.h": header})]
        self.assertEqual(len(found), 1, found)
        self.assertIn("low/a.h:3: error: std::min in a header of device code", found[0])
        launch = {**kernel, "low/k.cu": kernel["low/k.cu"] + "void F() { K<<<1, 2>>>(); }\n"}
        self.assertIn("start kernels by Launch", str(findings(**launch)[0]))

    def test_include_without_path(self):
        self.expect("low/a.cc", "path from the root", '#include "a.h"\n')

    def test_forbidden_header(self):
        self.expect("side/c.h", "stays at the edges", "#pragma once\n#include <grpcpp/grpcpp.h>\n")

    def test_public_header_sees_std_and_abseil(self):
        self.expect("client/include/embla/client.h", "std and Abseil only",
                    "#pragma once\n#include <grpcpp/grpcpp.h>\n")

    def test_circle_of_rooms(self):
        text = LAYERS.replace('"low" = { deps = [] }', '"low" = { deps = ["high"] }')
        self.expect("tools/layers.toml", "low -> high -> low", text)

    def test_file_without_room(self):
        self.expect("attic/x.h", "no room", "#pragma once\n")

    def test_own_header_first(self):
        self.expect("low/a.cc", 'include "low/a.h" first',
                    '#include <vector>\n#include "low/a.h"\n')

    def test_pragma_once(self):
        self.expect("low/a.h", "no #pragma once", "int A();\n")

    def test_columns_tabs_and_trailing_space(self):
        self.expect("low/CMakeLists.txt", "101 columns", "#" + "x" * 100 + "\n")
        self.expect("low/CMakeLists.txt", "a tab", "\tx\n")
        self.expect("low/CMakeLists.txt", "space at the end", "x \n")

    def test_what_programs_write_may_be_wide(self):
        self.expect_clean("deploy/helm/rendered/x.yaml", "#" + "x" * 100 + "\n")

    def test_todo(self):
        word = "TO" + "DO"
        self.expect("low/a.h", "without an issue", f"#pragma once\n// {word}: later\n")
        self.expect_clean("low/a.h", f"#pragma once\n// {word}(#12): later\n")

    def test_file_length(self):
        self.expect("low/a.h", "601 lines", "#pragma once\n" + "int x;\n" * 600)
        self.expect("low/a.h", "201 lines", "#pragma once\n" + "int x;\n" * 200, is_error=False)
        self.expect_clean("low/a_test.cc", "int x;\n" * 800)
        self.expect("low/a_test.cc", "801 lines", "int x;\n" * 801)

    def test_name(self):
        self.expect("low/file_util.h", "says nothing: util", "#pragma once\n")

    def test_file_that_no_cmake_lists(self):
        self.expect("low/lost_test.cc", "no CMakeLists.txt lists", "int x;\n")
        cmake = CLEAN["low/CMakeLists.txt"].replace("a_test.cc", "# a_test.cc")
        found = findings(**{"low/CMakeLists.txt": cmake})
        self.assertEqual([(f.path, f.message) for f in found],
                         [("low/a_test.cc", "no CMakeLists.txt lists this file")])

    def test_loops_and_functions_of_cmake_are_written_out(self):
        loop = "foreach(unit a b)\n  embla_test(${unit}_test SRCS ${unit}_test.cc)\nendforeach()\n"
        call = "function(my_test name)\n embla_test(t SRCS ${name}.cc)\nendfunction()\n"
        library = "embla_library(low SRCS a.cc HDRS a.h)\n"
        self.expect_clean("low/CMakeLists.txt", library + loop)
        self.expect_clean("low/CMakeLists.txt", library + call + "my_test(a_test DEPS x)\n")

    def test_header_for_tests_only_need_not_be_listed(self):
        header = {"low/odd.h": "#pragma once\n"}
        found = findings(**header, **{"low/a_test.cc": '#include "low/odd.h"\n'})
        self.assertEqual([str(f) for f in found], [])
        found = findings(**header)
        self.assertEqual([f.path for f in found], ["low/odd.h"])

    def test_similar_name_does_not_count_as_listed(self):
        cmake = CLEAN["low/CMakeLists.txt"].replace("SRCS a.cc", "SRCS aa.cc")
        found = findings(**{"low/CMakeLists.txt": cmake})
        self.assertEqual([f.path for f in found], ["low/a.cc"])


class BareOkTest(unittest.TestCase):
    def lines(self, code, path="low/a_test.cc"):
        file = tidy.File(path, [], tidy.strip_literals(code).splitlines())
        return [f.line for f in tidy.check_bare_ok(file)]

    def test_statuses_that_a_failure_does_not_print(self):
        for code in [
            "\nEXPECT_TRUE(status.ok());",
            '\nASSERT_TRUE(store->Put("a)", {1, 2}).ok()) << 7;',
            "\nEXPECT_FALSE(\n    Read(F(x)).ok());",
            "\nASSERT_TRUE(a.ok() && b->ok());",
        ]:
            self.assertEqual(self.lines(code), [2], code)

    def test_matchers_other_conditions_and_kernels(self):
        for code in [
            "EXPECT_THAT(status, IsOk());",
            "EXPECT_TRUE(status.ok() || is_late);",
            "EXPECT_TRUE(is_ok());",
            "if (status.ok()) EXPECT_TRUE(found);",
            "// EXPECT_TRUE(status.ok()) says less.",
        ]:
            self.assertEqual(self.lines(code), [], code)
        self.assertEqual(self.lines("EXPECT_TRUE(s.ok());", "kernels/cuda/a_test.cc"), [])


class SwitchTest(unittest.TestCase):
    def lines(self, code):
        file = tidy.File("a.cc", code.splitlines(), code.splitlines())
        return [f.line for f in tidy.check_switches(file)]

    def test_default_over_a_whole_enum(self):
        for name in ["OptimizerKind::kSgd", "embla::ShardingType::kRowWise"]:
            code = f"switch (x) {{\n  case {name}: {{\n    F();\n  }}\n  default:\n    G();\n}}\n"
            self.assertEqual(self.lines(code), [5], name)

    def test_other_enums_and_outer_switches_may_have_one(self):
        inner = "switch (y) {\n  case OptimizerKind::kSgd:\n    break;\n}\n"
        code = "switch (x) {\n  case Color::kRed:\n" + inner + "  default:\n    break;\n}\n"
        self.assertEqual(self.lines(code), [])


class CommentedCodeTest(unittest.TestCase):
    def commented(self, line):
        return bool(tidy.COMMENTED_CODE.match(line))

    def test_code(self):
        for line in [
            "// foo(bar);",
            "  // foo->Bar(1, x);",
            "// int x = 4;",
            "// x += y[3];",
            "// return x + 1;",
            "// #include <vector>",
            "// if (x > 3) {",
            "// for (int i = 0; i < n; ++i) {",
            "// }",
            "// } else {",
            "// class Foo {",
        ]:
            self.assertTrue(self.commented(line), line)

    def test_prose_and_examples(self):
        for line in [
            "// Ascending: two updates that share stripes could deadlock otherwise.",
            "// Frees the row; the caller keeps the slot.",
            "//   auto client = Connect(options);",
            "// Requires: size == rows * columns.",
            "// Row i is x[i], for every i in 0..n-1",
            "// returns nothing; see above",
            "// }  // namespace is closed below",
            "int x;  // = 3 by default;",
            "// The rest (see a.h);",
        ]:
            self.assertFalse(self.commented(line), line)


class CommentTest(unittest.TestCase):
    def lines(self, path, text):
        return [f.line for f in tidy.check_comments(tidy.File(path, text.splitlines()))]

    def test_openings_without_a_subject(self):
        cpp = "// Of the rows.\nint x;  // What it has.\nint y;  // As above.\n\n///< Whose copy.\n"
        self.assertEqual(self.lines("a.h", cpp), [1, 2, 3, 5])
        self.assertEqual(self.lines("a.proto", "int32 x = 1; // Those of a node.\n"), [1])
        script = "# That all agree.\nx = 1  # Which is read.\n"
        self.assertEqual(self.lines("a.sh", script), [1, 2])
        self.assertEqual(self.lines("a.py", 'def f():\n    """What f knows."""\n'), [2])

    def test_a_new_paragraph_opens_a_comment(self):
        self.assertEqual(self.lines("a.h", "// Rows of a table.\n//\n// Of each, one.\n"), [3])

    def test_sentences_and_continuations(self):
        for text in [
            "// Rows of a table.\n// Of these, the first is read.\n",
            "int x;  // Rows that a batch touches,\n        // As many as fit.\n",
            "// What does a lookup cost?\n",
            "// Offsets, aspects and whatnot.\n",
            'Log("x // Of y");\n',
        ]:
            self.assertEqual(self.lines("a.h", text), [], text)

    def test_it_is_an_error(self):
        found = findings(**{"low/a.h": "#pragma once\n// Whose row.\nint A();\n"})
        self.assertEqual([str(f) for f in found],
                         ["low/a.h:2: error: the comment begins with Whose: name its subject"])


class FunctionTest(unittest.TestCase):
    def functions(self, text):
        file = tidy.File("x.cc", text.splitlines(), tidy.strip_literals(text).splitlines())
        return list(tidy.functions(file))

    def test_plain_member_and_constructor(self):
        text = (
            "namespace a {\n"
            "class B : public C {\n"
            " public:\n"
            "  explicit B(int x, std::map<int, int> y) : x_(x), y_{y} {\n"
            "    Init();\n"
            "  }\n"
            "  int Get() const { return x_; }\n"
            "};\n"
            "absl::StatusOr<int> Run(\n"
            "    int a,\n"
            "    int b) {\n"
            "  if (a) {\n"
            "    return b;\n"
            "  }\n"
            "  return a;\n"
            "}\n"
            "}  // namespace a\n"
        )
        self.assertEqual(self.functions(text), [(4, 6, 2), (7, 7, 0), (9, 16, 2)])

    def test_lambda_counts_in_its_function(self):
        text = "void F() {\n  auto g = [&](int a) {\n    return a;\n  };\n}\n"
        self.assertEqual(self.functions(text), [(1, 5, 0)])

    def test_tables_and_enums_are_no_functions(self):
        text = (
            "enum class E : int { kA = 1 };\n"
            "constexpr int kTable[] = {\n  F(1),\n  F(2),\n};\n"
            "struct S {\n  int x = 0;\n};\n"
        )
        self.assertEqual(self.functions(text), [])

    def test_braces_in_literals_and_comments_do_not_count(self):
        text = "void F() {\n  // }\n  Put(\"}\", '}', R\"(})\");\n}\n"
        self.assertEqual(self.functions(text), [(1, 4, 0)])

    def test_caps(self):
        body = "void F() {\n" + "  G();\n" * 69 + "}\n"
        found = findings(**{"low/a.cc": '#include "low/a.h"\n' + body})
        self.assertIn("function of 71 lines, at most 70", [f.message for f in found])
        body = "void F(I a, I b, I c, I d, I e, I f) {}\n"
        found = findings(**{"low/a.cc": '#include "low/a.h"\n' + body})
        self.assertIn("6 parameters, better at most 5", [f.message for f in found])

    def test_test_bodies_are_measured(self):
        body = "TEST(A, B) {\n" + "  G();\n" * 69 + "}\n"
        found = findings(**{"low/a_test.cc": body})
        self.assertIn("function of 71 lines, at most 70", [f.message for f in found])


if __name__ == "__main__":
    unittest.main()
