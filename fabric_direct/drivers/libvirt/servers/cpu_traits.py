"""CPU features as traits, by the names that os-traits has for them and that Nova gives its hosts."""

import re
from collections.abc import Iterable, Iterator

import os_traits

_PREFIXES = {"x86_64": "HW_CPU_X86_", "aarch64": "HW_CPU_AARCH64_"}
# What os-traits calls otherwise than libvirt does (Nova: CPU_TRAITS_MAPPING).
_OTHERWISE = {
    "aes": ("AESNI",),
    "bmi1": ("BMI",),
    "fma": ("FMA3",),
    "pclmuldq": ("CLMUL",),
    "pni": ("SSE3",),
    "rtm": ("TSX",),
    "sha-ni": ("SHA",),
    "svm": ("SVM", "AMD_SVM"),
    "vmx": ("VMX", "INTEL_VMX"),
}


def cpu_traits(architecture: str, features: Iterable[str]) -> frozenset[str]:
    """Return the traits of a CPU; a feature that os-traits has no name for has none.

    :param features: as libvirt names them: ``sse4.1``, ``avx512-vpopcntdq``.
    """
    prefix = _PREFIXES.get(architecture)
    if prefix is None:
        return frozenset()
    named = (prefix + name for feature in features for name in _names(feature))
    return frozenset(named) & set(os_traits.get_traits(prefix))


def _names(feature: str) -> Iterator[str]:
    yield from _OTHERWISE.get(feature, ())
    plain = re.sub(r"[^A-Z0-9]", "", feature.upper())
    yield plain
    yield f"AVX512{plain}"
