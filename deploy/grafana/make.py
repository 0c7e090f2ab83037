"""Writes dashboard.json: panels are a table here, so that a query stands on one line and all look alike."""

import json
import sys
from pathlib import Path

PANELS = [
    # (row, title, unit, [(legend, query)])
    ("Service", "Requests a second", "reqps", [("{{method}} {{code}}", 'sum by (method, code) (rate(lookalike_requests_total{method=~"Recognition/.*"}[$__rate_interval]))')]),
    ("Service", "Latency", "s", [(f"p{share} {{{{method}}}}", f'histogram_quantile(0.{share}, sum by (method, le) (rate(lookalike_request_duration_seconds_bucket{{method=~"Recognition/.*"}}[$__rate_interval])))') for share in (50, 99)]),
    ("Service", "Where the time goes (mean)", "s", [("{{stage}}", "sum by (stage) (rate(lookalike_stage_duration_seconds_sum[$__rate_interval])) / sum by (stage) (rate(lookalike_stage_duration_seconds_count[$__rate_interval]))")]),
    ("Service", "Waiting and in flight", "short", [("in flight", "sum(lookalike_inflight_requests)"), ("waiting scans", "sum(lookalike_queue_depth)")]),
    ("Service", "Decisions a second", "short", [("{{decision}}", "sum by (decision) (rate(lookalike_decisions_total[$__rate_interval]))")]),
    ("Service", "Decisions within 0.01 of the cut", "percentunit", [("{{bound}}", '(sum by (bound) (rate(lookalike_decision_headroom_bucket{le="0.01"}[$__rate_interval])) - sum by (bound) (rate(lookalike_decision_headroom_bucket{le="-0.01"}[$__rate_interval]))) / sum by (bound) (rate(lookalike_decision_headroom_count[$__rate_interval]))')]),
    ("Galleries and backends", "Prototypes and identities", "short", [("prototypes", "sum(lookalike_gallery_prototypes)"), ("identities", "sum(lookalike_gallery_identities)")]),
    ("Galleries and backends", "Generation", "short", [("{{instance}}", "lookalike_gallery_generation")]),
    ("Galleries and backends", "Backends up", "short", [("{{role}}: {{backend}}", "min by (role, backend) (lookalike_backend_up)")]),
    ("Galleries and backends", "Device memory", "bytes", [("{{role}}", "sum by (role) (lookalike_device_memory_bytes)")]),
    ("Galleries and backends", "Fallbacks and failures", "short", [("fallback: {{reason}}", "sum by (reason) (increase(lookalike_backend_fallback_total[$__rate_interval]))"), ("{{role}} failed: {{reason}}", "sum by (role, reason) (increase(lookalike_backend_failures_total[$__rate_interval]))")]),
    ("Galleries and backends", "Scans that proved nothing at first", "short", [("{{backend}}", "sum by (backend) (rate(lookalike_uncertified_scans_total[$__rate_interval]))")]),
    ("Galleries and backends", "Probes a batch (mean)", "short", [("{{role}}", "sum by (role) (rate(lookalike_batch_probes_sum[$__rate_interval])) / sum by (role) (rate(lookalike_batch_probes_count[$__rate_interval]))")]),
    ("Shadow", "Comparisons a second, by kind", "short", [("{{kind}}", "sum by (kind) (rate(lookalike_shadow_comparisons_total[$__rate_interval]))")]),
    ("Shadow", "Disagreements", "short", [("{{kind}}", 'sum by (kind) (increase(lookalike_shadow_comparisons_total{kind=~"decision|identity|order|score|error|timeout"}[$__rate_interval]))')]),
    ("Shadow", "Agreement", "percentunit", [("agree or borderline", 'sum(rate(lookalike_shadow_comparisons_total{kind=~"agree|borderline"}[$__rate_interval])) / sum(rate(lookalike_shadow_comparisons_total{kind!="dropped"}[$__rate_interval]))')]),
    ("Shadow", "Score error of the shadow", "short", [(f"p{share}", f"histogram_quantile(0.{share}, sum by (le) (rate(lookalike_shadow_score_abs_error_bucket[$__rate_interval])))") for share in (50, 99)]),
    ("Shadow", "Latency of the shadow by the primary's", "short", [(f"p{share}", f"histogram_quantile(0.{share}, sum by (le) (rate(lookalike_shadow_latency_ratio_bucket[$__rate_interval])))") for share in (50, 99)]),
    ("Shadow", "The primary's rows that the shadow found (mean)", "percentunit", [("share", "sum(rate(lookalike_shadow_topk_overlap_sum[$__rate_interval])) / sum(rate(lookalike_shadow_topk_overlap_count[$__rate_interval]))")]),
    ("Shadow", "Gate (1: met)", "short", [("{{condition}}", "min by (condition) (lookalike_shadow_gate)")]),
    ("Shadow", "Rollout", "short", [("promoted", "max(lookalike_shadow_promoted)"), ("sampling", "max(lookalike_shadow_sampling_ratio)"), ("breaker open", "max(lookalike_shadow_breaker_open)"), ("backend open", "min(lookalike_shadow_open)"), ("{{change}}", "sum by (change) (increase(lookalike_shadow_changes_total[$__rate_interval]))")]),
    ("Shadow", "Sampled and not compared a second, by reason", "short", [("{{reason}}", "sum by (reason) (rate(lookalike_shadow_drops_total[$__rate_interval]))")]),
    ("Shadow", "Probes waiting for the shadow", "short", [("{{instance}}", "lookalike_shadow_queue_depth")]),
]

SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def panel(number, title, unit, queries, place):
    """One time series; three fill a line."""
    targets = [{"refId": chr(65 + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
               for at, (legend, query) in enumerate(queries)]
    return {"id": number, "type": "timeseries", "title": title, "datasource": SOURCE, "targets": targets,
            "gridPos": {"h": 8, "w": 8, "x": 8 * (place % 3), "y": 0},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}}


def dashboard():
    panels, number, y = [], 0, 0
    for row in dict.fromkeys(row for row, *_ in PANELS):
        number += 1
        panels.append({"id": number, "type": "row", "title": row, "collapsed": False, "panels": [],
                       "gridPos": {"h": 1, "w": 24, "x": 0, "y": y}})
        y += 1
        members = [one for one in PANELS if one[0] == row]
        for place, (_, title, unit, queries) in enumerate(members):
            number += 1
            one = panel(number, title, unit, queries, place)
            one["gridPos"]["y"] = y + 8 * (place // 3)
            panels.append(one)
        y += 8 * -(-len(members) // 3)
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    return {"title": "Lookalike", "uid": "lookalike", "schemaVersion": 38, "editable": True, "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"}, "timezone": "", "tags": ["lookalike"],
            "templating": {"list": [source]}, "panels": panels}


if __name__ == "__main__":
    Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("dashboard.json")).write_text(
        json.dumps(dashboard(), indent=2) + "\n")
