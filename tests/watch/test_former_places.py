"""Import paths of 0.1.0 that were documented."""


def test_the_former_modules_give_the_same_objects():
    from rtfilter import metrics, processes
    from rtfilter.watch import metrics as watch_metrics
    from rtfilter.watch import processes as watch_processes

    assert metrics.Metrics is watch_metrics.Metrics
    assert metrics.serve is watch_metrics.serve
    assert processes.share is watch_processes.share
    assert processes.Together is watch_processes.Together
