"""The charts, on figures that are made up. scripts/bench.sh runs this when it has fetched matplotlib."""

import unittest

import charts
import test_report


class ChartsTest(test_report.MadeUp):
    def test_charts_are_the_same_each_time(self):
        results = self.results()
        drawn = []
        for name in ("a", "b"):
            output = self.folder / name
            output.mkdir()
            charts.draw(results, output)
            drawn.append({path.name: path.read_bytes() for path in output.glob("*.svg")})
        self.assertEqual(set(drawn[0]), {"performance.svg", "performance_scaling.svg"})
        self.assertEqual(drawn[0], drawn[1])
        for name, content in drawn[0].items():
            self.assertLess(len(content), 200_000, name)
            self.assertIn(b"<svg", content)


if __name__ == "__main__":
    unittest.main()
