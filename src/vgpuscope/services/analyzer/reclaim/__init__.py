"""Takes GPUs of idle workloads back.

analysis ─► Ticks ─► one transaction: cases, calls, audit ─► Deliveries, each checked again ─► settled in the store
                                                        └──► CaseNotices ─► the owner is told ─► settled in the store

reclaim.py puts the parts together; they work on one Shared object. People decides what operators and owners ask for.
"""
