"""What a listener says of the scrapes that it served."""

from vgpuscope.http.scrapes import ScrapeTally
from vgpuscope.model.serving import ServedScrapes


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_before_the_first_scrape_nothing_was_served_and_no_quantile_is_known():
    assert ScrapeTally(Clock()).served() == ServedScrapes(count=0, bytes=0, seconds=0.0, quantiles=())


def test_counts_are_of_all_scrapes_and_quantiles_of_the_last_minute():
    clock = Clock()
    tally = ScrapeTally(clock)
    tally.add(1000, 9.0)
    clock.seconds += 61
    for took in range(1, 101):
        tally.add(10, took / 1000)
    served = tally.served()
    assert (served.count, served.bytes, round(served.seconds, 6)) == (101, 2000, 14.05)
    assert served.quantiles == (0.05, 0.09, 0.099)
