"""The days that the daily tables of this workspace are divided into."""

import segmentstream.dagster as dg

daily = dg.DailyPartitionsDefinition(
    start_date="2013-01-01", end_date="2014-01-01", timezone="America/New_York"
)
