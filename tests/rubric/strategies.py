"""Hypothesis strategies for rubrics."""

from __future__ import annotations

from hypothesis import strategies as st

from rubric_integrations import Check, Criterion, Rubric

texts = st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip()))
weights = st.floats(-1e6, 1e6).filter(bool)
criteria = st.builds(
    Criterion,
    requirement=texts,
    weight=weights,
    required=st.booleans(),
    min_score=st.none() | st.floats(0, 1),
    tags=st.lists(texts, max_size=3, unique=True),
    importance=st.none() | st.sampled_from(["essential", "important", "optional", "pitfall"]),
    metadata=st.none() | st.dictionaries(texts, texts | st.integers() | st.lists(texts, max_size=2), max_size=2),
    check=st.none() | st.builds(Check, contains=texts, max_words=st.integers(0, 10**6), ignore_case=st.booleans()),
)
rubrics = st.builds(
    Rubric,
    st.lists(criteria, min_size=1, max_size=6),
    name=st.none() | texts,
    guidelines=st.none() | texts,
    pass_mark=st.floats(0, 1),
    min_coverage=st.floats(0, 1),
)
