# SPDX-License-Identifier: BSD-2-Clause
"""The table of figures that bench/run and bench/ucx print."""
import sys


def number(value):
    """In digits that say enough."""
    return f"{value:,.{2 if value < 10 else 0}f}"


class Report:
    """The figures, and the table of them."""

    def __init__(self):
        self.figures = []
        self.failures = []

    def add(self, name, unit, value, limit, sense, target, ratio=None, samples=()):
        """A figure: the value against target (of the ratio, if there is one)."""
        judged = value if ratio is None else ratio
        fine = judged <= target if sense == "<=" else judged >= target
        self.figures.append({"figure": name, "unit": unit, "value": value, "limit": limit,
                             "ratio": ratio, "sense": sense, "target": target, "ok": fine,
                             "samples": list(samples)})

    def fail(self, name, failure):
        """Something that did not run."""
        self.failures.append(name)
        print(f"{name}: {failure}", file=sys.stderr)

    def table(self):
        """Prints what there is."""
        print(f"{'figure':44} {'value':>16} {'limit':>8} {'ratio':>6}  target")
        for one in self.figures:
            ratio = f"{one['ratio']:.2f}" if one["ratio"] is not None else ""
            limit = "" if one["limit"] is None else number(one["limit"])
            value = f"{number(one['value'])} {one['unit']}"
            target = f"{one['sense']} {one['target']:,g}"
            print(f"{one['figure']:44} {value:>16} {limit:>8} {ratio:>6}  {target:13} "
                  f"{'ok' if one['ok'] else 'below'}")
