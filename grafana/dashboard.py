"""Makes the dashboard. Run ``python grafana/dashboard.py`` after a change of `panels.py`."""

from __future__ import annotations

from pathlib import Path

from grafana_foundation_sdk.builders import (
    bargauge,
    common,
    dashboard,
    heatmap,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import GraphTresholdsStyleMode, VizOrientation
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

from panels import LEVEL_CHANGES, ROWS, VARIABLES, Panel

FILE = Path(__file__).parent / "dashboards" / "rtfilter.json"
SOURCE = DataSourceRef(type_val="prometheus", uid="${source}")
HEIGHT, WIDTH = 8, 8
"""Size of a panel on Grafana's grid, which is 24 columns wide."""


def build() -> str:
    """The dashboard as JSON."""
    made = (
        dashboard.Dashboard("rtfilter")
        .uid("rtfilter")
        .description("Response time of rtfilter, decisions of its controller, and where the time is spent")
        .tags(["rtfilter"])
        .timezone("browser")
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("source").label("Prometheus").type("prometheus"))
        .annotation(
            dashboard.AnnotationQuery()
            .name("Changes of level")
            .datasource(SOURCE)
            .enable(True)
            .icon_color("orange")
            .expr(LEVEL_CHANGES)
        )
    )
    before: list[str] = []
    for name in VARIABLES:
        made.with_variable(_variable(name, before))
        before.append(f'{name}=~"${name}"')
    for row in ROWS:
        titled = dashboard.Row(row.title)
        if row.closed:  # holds its panels itself, and is closed then
            for panel in row.panels:
                titled.with_panel(_panel(panel))
            made.with_row(titled)
            continue
        made.with_row(titled)
        for panel in row.panels:
            made.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _variable(name: str, chosen: list[str]) -> dashboard.QueryVariable:
    """A variable for a label; the values are those that go with what was chosen before."""
    matchers = ", ".join(['__name__=~"rtfilter_(spark_)?index_subscriptions"', *chosen])
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(SOURCE)
        .query(f"label_values({{{matchers}}}, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")  # also where there is no such label
    )


def _panel(panel: Panel) -> timeseries.Panel | heatmap.Panel | bargauge.Panel | stat.Panel:
    kinds = {
        "lines": timeseries.Panel,
        "heatmap": heatmap.Panel,
        "bars": bargauge.Panel,
        "number": stat.Panel,
    }
    made = kinds[panel.kind]().title(panel.title).description(panel.text).unit(panel.unit)
    made.datasource(SOURCE).height(HEIGHT).span(WIDTH)
    for place, (legend, expression) in enumerate(panel.queries.items()):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(chr(ord("A") + place))
        query.datasource(SOURCE)
        if panel.kind == "bars":
            query.instant()
        if panel.kind == "heatmap":
            query.format("heatmap")
        made.with_target(query)
    if panel.limit is not None:
        steps = [Threshold(None, "green"), Threshold(panel.limit, "red")]
        made.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        if panel.kind == "lines":
            made.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphTresholdsStyleMode.DASHED))
    if panel.kind == "bars":
        made.orientation(VizOrientation.HORIZONTAL)
    if panel.kind == "heatmap":
        made.y_axis(heatmap.YAxisConfig().unit(panel.unit)).show_tooltip()
    if panel.kind == "lines":
        made.legend(common.VizLegendOptions().show_legend(True).display_mode("list").placement("bottom"))
    return made


if __name__ == "__main__":
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(build())
    print(f"wrote {FILE}")
