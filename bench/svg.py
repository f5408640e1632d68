"""Plots as SVG: panels whose x axis has evenly spaced marks and whose y axis starts at 0."""


class Panel:
    """One plot. `marks`: the values on the x axis; `top`: the largest value of the y axis; `size`: width and height."""

    def __init__(self, title, marks, top, size):
        (self.wide, high), self.left, self.low = size, 40, size[1] - 40
        self.marks, self.top = marks, top
        self.shapes = [f'<text x="{self.left}" y="24" font-weight="bold">{title}</text>', *self.axes()]

    def x(self, mark):
        return self.left + 20 + (self.wide - self.left - 50) * self.marks.index(mark) / max(len(self.marks) - 1, 1)

    def y(self, value):
        return self.low - (self.low - 40) * value / self.top

    def axes(self):
        steps = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000]
        step = next(step for step in steps if self.top / step <= 6)
        for k in range(int(self.top / step) + 1):
            at = self.y(k * step)
            yield (f'<path d="M{self.left},{at:.1f}H{self.wide - 20}" stroke="#ddd"/>'
                   f'<text x="{self.left - 6}" y="{at + 4:.1f}" text-anchor="end">{k * step:g}</text>')
        yield f'<path d="M{self.left},{self.y(self.top):.1f}V{self.low}H{self.wide - 20}" fill="none" stroke="#666"/>'
        for mark in self.marks:
            yield f'<text x="{self.x(mark):.1f}" y="{self.low + 17}" text-anchor="middle">{mark}</text>'

    def dots(self, points, color):
        """Adds a dot per (mark, value)."""
        self.shapes += [f'<circle cx="{self.x(mark):.1f}" cy="{self.y(value):.1f}" r="3" fill="{color}"/>' for mark, value in points]

    def line(self, points, color, more=""):
        """Adds a line through (mark, value) pairs; `more`: further attributes."""
        path = " ".join(f"{self.x(mark):.1f},{self.y(value):.1f}" for mark, value in points)
        self.shapes.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{more}/>')

    def placed(self, right, down):
        """Returns the panel with its upper left corner there."""
        return f'<g transform="translate({right},{down})">{"".join(self.shapes)}</g>'


def legend(labels, y, wide=140):
    """Returns coloured squares in a row, each with its label, for (label, color) pairs."""
    return [f'<rect x="{40 + wide * k}" y="{y}" width="12" height="12" fill="{color}"/>'
            f'<text x="{58 + wide * k}" y="{y + 10}">{label}</text>' for k, (label, color) in enumerate(labels)]


def save(path, size, shapes):
    """Writes a drawing on white."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" font-family="sans-serif" font-size="12">'
        f'<rect width="{size[0]}" height="{size[1]}" fill="white"/>{"".join(shapes)}</svg>\n')
