def write_report(run):
    return run.folder / "report.html"
