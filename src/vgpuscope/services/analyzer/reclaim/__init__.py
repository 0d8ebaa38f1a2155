"""Takes GPUs of idle workloads back.

analysis ─► Ticks ─► one transaction: cases, calls, audit ─► Deliveries, each checked again ─► settled in the store
                                                        └──► CaseNotices ─► owner is notified ─► settled in the store

reclaim.py puts the parts together; they work on one ReclaimState. CaseActions does what operators and owners ask for.
"""
