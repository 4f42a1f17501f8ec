"""CPU features by the names that os-traits has for them."""

import os_traits
import pytest

from fabric_direct.drivers.libvirt.servers.cpu_traits import cpu_traits


@pytest.mark.parametrize(
    ("feature", "traits"),
    [
        ("avx2", {os_traits.HW_CPU_X86_AVX2}),
        ("sse4.1", {os_traits.HW_CPU_X86_SSE41}),
        ("avx512f", {os_traits.HW_CPU_X86_AVX512F}),
        ("avx512-vpopcntdq", {os_traits.HW_CPU_X86_AVX512VPOPCNTDQ}),
        ("vaes", {os_traits.HW_CPU_X86_AVX512VAES}),
        ("gfni", {os_traits.HW_CPU_X86_AVX512GFNI}),
        ("amx-int8", {os_traits.HW_CPU_X86_AMXINT8}),
        ("pdpe1gb", {os_traits.HW_CPU_X86_PDPE1GB}),
        # Those that have another name there.
        ("aes", {os_traits.HW_CPU_X86_AESNI}),
        ("bmi1", {os_traits.HW_CPU_X86_BMI}),
        ("bmi2", {os_traits.HW_CPU_X86_BMI2}),
        ("fma", {os_traits.HW_CPU_X86_FMA3}),
        ("pclmuldq", {os_traits.HW_CPU_X86_CLMUL}),
        ("pni", {os_traits.HW_CPU_X86_SSE3}),
        ("rtm", {os_traits.HW_CPU_X86_TSX}),
        ("sha-ni", {os_traits.HW_CPU_X86_SHA}),
        ("svm", {os_traits.HW_CPU_X86_SVM, os_traits.HW_CPU_X86_AMD_SVM}),
        ("vmx", {os_traits.HW_CPU_X86_VMX, os_traits.HW_CPU_X86_INTEL_VMX}),
        # Those that have none.
        ("cx16", set()),
        ("no such feature", set()),
    ],
)
def test_a_feature_has_the_traits_that_os_traits_knows(feature: str, traits: set[str]) -> None:
    assert cpu_traits("x86_64", [feature]) == traits


def test_a_cpu_has_the_traits_of_all_its_features() -> None:
    assert cpu_traits("x86_64", ["sse", "sse2", "cx16"]) == {"HW_CPU_X86_SSE", "HW_CPU_X86_SSE2"}


def test_another_architecture_has_traits_of_its_own() -> None:
    assert cpu_traits("aarch64", ["sve", "aes"]) == {"HW_CPU_AARCH64_SVE", "HW_CPU_AARCH64_AES"}
    assert cpu_traits("riscv64", ["aes"]) == frozenset()
