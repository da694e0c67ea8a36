# SPDX-License-Identifier: Apache-2.0
"""The layers of well-known networks, as data: name, problem string (see problem.py), how often the network has it.

Images are 224 x 224 and batches 1 unless the layer says otherwise. A transposed layer is put as the convolution that
has the same sum, with src and dst exchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from convgrad.bench.problem import Problem, parse_problem

DEFAULT_SUITE = "table"
_BATCH_IN_NAME = re.compile(r", N=\d+$")


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer: what it is called, its problem, how often a network has it, which operation its gradient is."""

    name: str
    problem: Problem
    count: int = 1
    transposed: bool = False

    def with_batch(self, batch: int) -> Layer:
        """The same layer on another number of images. Its name says none any more: all layers have this one."""
        return replace(self, name=_BATCH_IN_NAME.sub("", self.name), problem=self.problem.with_batch(batch))


@dataclass(frozen=True, slots=True)
class Suite:
    """Layers that belong together. `network`: they and their counts are all of one network's convolutions."""

    title: str
    layers: tuple[Layer, ...]
    network: bool = False


def _read_table(table: str) -> tuple[Layer, ...]:
    """Lines of: problem string, times, name; a name that ends in (transposed) says which operation it is."""
    layers = []
    for line in table.strip().splitlines():
        text, count, name = line.split(maxsplit=2)
        layers.append(Layer(name, parse_problem(text)[0], int(count), name.endswith("(transposed)")))
    return tuple(layers)


RESNET50 = _read_table("""
ic3ih224oc64kh7sh2ph3             1  conv1 7x7 s2 3->64, 224
ic64ih56oc64kh1                   1  1x1 64->64, 56
ic64ih56oc64kh3ph1                3  3x3 64, 56
ic64ih56oc256kh1                  4  1x1 64->256, 56
ic256ih56oc64kh1                  2  1x1 256->64, 56
ic256ih56oc128kh1                 1  1x1 256->128, 56
ic128ih56oc128kh3sh2ph1           1  3x3 128 s2, 56
ic256ih56oc512kh1sh2              1  1x1 256->512 s2, 56
ic128ih28oc512kh1                 4  1x1 128->512, 28
ic512ih28oc128kh1                 3  1x1 512->128, 28
ic128ih28oc128kh3ph1              3  3x3 128, 28
ic512ih28oc256kh1                 1  1x1 512->256, 28
ic256ih28oc256kh3sh2ph1           1  3x3 256 s2, 28
ic512ih28oc1024kh1sh2             1  1x1 512->1024 s2, 28
ic256ih14oc1024kh1                6  1x1 256->1024, 14
ic1024ih14oc256kh1                5  1x1 1024->256, 14
ic256ih14oc256kh3ph1              5  3x3 256, 14
ic1024ih14oc512kh1                1  1x1 1024->512, 14
ic512ih14oc512kh3sh2ph1           1  3x3 512 s2, 14
ic1024ih14oc2048kh1sh2            1  1x1 1024->2048 s2, 14
ic512ih7oc2048kh1                 3  1x1 512->2048, 7
ic2048ih7oc512kh1                 2  1x1 2048->512, 7
ic512ih7oc512kh3ph1               2  3x3 512, 7
""")

MOBILENETV2 = _read_table("""
ic3ih224oc32kh3sh2ph1             1  3x3 s2 3->32, 224
g32ic32ih112oc32kh3ph1            1  depthwise 3x3 32, 112
ic32ih112oc16kh1                  1  1x1 32->16, 112
ic16ih112oc96kh1                  1  1x1 16->96, 112
g96ic96ih112oc96kh3sh2ph1         1  depthwise 3x3 96 s2, 112
ic96ih56oc24kh1                   1  1x1 96->24, 56
ic24ih56oc144kh1                  2  1x1 24->144, 56
g144ic144ih56oc144kh3ph1          1  depthwise 3x3 144, 56
ic144ih56oc24kh1                  1  1x1 144->24, 56
g144ic144ih56oc144kh3sh2ph1       1  depthwise 3x3 144 s2, 56
ic144ih28oc32kh1                  1  1x1 144->32, 28
ic32ih28oc192kh1                  3  1x1 32->192, 28
g192ic192ih28oc192kh3ph1          2  depthwise 3x3 192, 28
ic192ih28oc32kh1                  2  1x1 192->32, 28
g192ic192ih28oc192kh3sh2ph1       1  depthwise 3x3 192 s2, 28
ic192ih14oc64kh1                  1  1x1 192->64, 14
ic64ih14oc384kh1                  4  1x1 64->384, 14
g384ic384ih14oc384kh3ph1          4  depthwise 3x3 384, 14
ic384ih14oc64kh1                  3  1x1 384->64, 14
ic384ih14oc96kh1                  1  1x1 384->96, 14
ic96ih14oc576kh1                  3  1x1 96->576, 14
g576ic576ih14oc576kh3ph1          2  depthwise 3x3 576, 14
ic576ih14oc96kh1                  2  1x1 576->96, 14
g576ic576ih14oc576kh3sh2ph1       1  depthwise 3x3 576 s2, 14
ic576ih7oc160kh1                  1  1x1 576->160, 7
ic160ih7oc960kh1                  3  1x1 160->960, 7
g960ic960ih7oc960kh3ph1           3  depthwise 3x3 960, 7
ic960ih7oc160kh1                  2  1x1 960->160, 7
ic960ih7oc320kh1                  1  1x1 960->320, 7
ic320ih7oc1280kh1                 1  1x1 320->1280, 7
""")

CONVNEXT = _read_table("""
ic3ih224oc96kh4sh4                1  patches 4x4 s4 3->96, 224
g96ic96ih56oc96kh7ph3             3  depthwise 7x7 96, 56
ic96ih56oc384kh1                  3  1x1 96->384, 56
ic384ih56oc96kh1                  3  1x1 384->96, 56
ic96ih56oc192kh2sh2               1  2x2 s2 96->192, 56
g192ic192ih28oc192kh7ph3          3  depthwise 7x7 192, 28
ic192ih28oc768kh1                 3  1x1 192->768, 28
ic768ih28oc192kh1                 3  1x1 768->192, 28
ic192ih28oc384kh2sh2              1  2x2 s2 192->384, 28
g384ic384ih14oc384kh7ph3          9  depthwise 7x7 384, 14
ic384ih14oc1536kh1                9  1x1 384->1536, 14
ic1536ih14oc384kh1                9  1x1 1536->384, 14
ic384ih14oc768kh2sh2              1  2x2 s2 384->768, 14
g768ic768ih7oc768kh7ph3           3  depthwise 7x7 768, 7
ic768ih7oc3072kh1                 3  1x1 768->3072, 7
ic3072ih7oc768kh1                 3  1x1 3072->768, 7
""")

RESNEXT = _read_table("""
ic3ih224oc64kh7sh2ph3             1  conv1 7x7 s2 3->64, 224
ic64ih56oc128kh1                  1  1x1 64->128, 56
g32ic128ih56oc128kh3ph1           3  3x3 128 groups 32, 56
ic128ih56oc256kh1                 3  1x1 128->256, 56
ic64ih56oc256kh1                  1  1x1 64->256, 56
ic256ih56oc128kh1                 2  1x1 256->128, 56
ic256ih56oc256kh1                 1  1x1 256->256, 56
g32ic256ih56oc256kh3sh2ph1        1  3x3 256 groups 32 s2, 56
ic256ih28oc512kh1                 4  1x1 256->512, 28
ic256ih56oc512kh1sh2              1  1x1 256->512 s2, 56
ic512ih28oc256kh1                 3  1x1 512->256, 28
g32ic256ih28oc256kh3ph1           3  3x3 256 groups 32, 28
ic512ih28oc512kh1                 1  1x1 512->512, 28
g32ic512ih28oc512kh3sh2ph1        1  3x3 512 groups 32 s2, 28
ic512ih14oc1024kh1                6  1x1 512->1024, 14
ic512ih28oc1024kh1sh2             1  1x1 512->1024 s2, 28
ic1024ih14oc512kh1                5  1x1 1024->512, 14
g32ic512ih14oc512kh3ph1           5  3x3 512 groups 32, 14
ic1024ih14oc1024kh1               1  1x1 1024->1024, 14
g32ic1024ih14oc1024kh3sh2ph1      1  3x3 1024 groups 32 s2, 14
ic1024ih7oc2048kh1                3  1x1 1024->2048, 7
ic1024ih14oc2048kh1sh2            1  1x1 1024->2048 s2, 14
ic2048ih7oc1024kh1                2  1x1 2048->1024, 7
g32ic1024ih7oc1024kh3ph1          2  3x3 1024 groups 32, 7
""")

WAVENET = _read_table("""
ic1iw4097oc64kw2                  1  k2 1->64, 4096
ic64iw4097oc128kw2                3  k2 64->128, 4096
ic64iw4098oc128kw2dw1             3  k2 dilation 2 64->128, 4096
ic64iw4100oc128kw2dw3             3  k2 dilation 4 64->128, 4096
ic64iw4104oc128kw2dw7             3  k2 dilation 8 64->128, 4096
ic64iw4112oc128kw2dw15            3  k2 dilation 16 64->128, 4096
ic64iw4128oc128kw2dw31            3  k2 dilation 32 64->128, 4096
ic64iw4160oc128kw2dw63            3  k2 dilation 64 64->128, 4096
ic64iw4224oc128kw2dw127           3  k2 dilation 128 64->128, 4096
ic64iw4352oc128kw2dw255           3  k2 dilation 256 64->128, 4096
ic64iw4608oc128kw2dw511           3  k2 dilation 512 64->128, 4096
ic64iw4096oc64kw1                30  k1 64->64, 4096
ic64iw4096oc256kw1               30  k1 64->256, 4096
ic256iw4096oc256kw1               2  k1 256->256, 4096
""")

WAV2VEC2 = _read_table("""
ic1iw80000oc512kw10sw5            1  k10 s5 1->512, 80000
ic512iw15999oc512kw3sw2           1  k3 s2 512, 15999
ic512iw7999oc512kw3sw2            1  k3 s2 512, 7999
ic512iw3999oc512kw3sw2            1  k3 s2 512, 3999
ic512iw1999oc512kw3sw2            1  k3 s2 512, 1999
ic512iw999oc512kw2sw2             1  k2 s2 512, 999
ic512iw499oc512kw2sw2             1  k2 s2 512, 499
g16ic768iw249oc768kw128pw64       1  k128 768 groups 16, 249
""")

CONFORMER = _read_table("""
mb4ic1ih2048iw80oc256kh3sh2       1  3x3 s2 1->256, 2048x80
mb4ic256ih1023iw39oc256kh3sh2     1  3x3 s2 256, 1023x39
mb4ic256iw512oc512kw1            16  k1 256->512, 512
mb4g256ic256iw512oc256kw31pw15   16  depthwise k31 256, 512
mb4ic256iw512oc256kw1            16  k1 256->256, 512
""")

UNET3D = _read_table("""
ic1id32ih64oc32kd3pd1             1  3x3x3 1->32, 32x64x64
ic32id32ih64oc64kd3pd1            1  3x3x3 32->64, 32x64x64
ic64id16ih32oc64kd3pd1            1  3x3x3 64->64, 16x32x32
ic64id16ih32oc128kd3pd1           1  3x3x3 64->128, 16x32x32
ic128id8ih16oc128kd3pd1           1  3x3x3 128->128, 8x16x16
ic128id8ih16oc256kd3pd1           1  3x3x3 128->256, 8x16x16
ic256id4ih8oc256kd3pd1            1  3x3x3 256->256, 4x8x8
ic256id4ih8oc512kd3pd1            1  3x3x3 256->512, 4x8x8
ic512id8ih16oc512kd2sd2           1  2x2x2 s2 512, 4x8x8 up (transposed)
ic768id8ih16oc256kd3pd1           1  3x3x3 768->256, 8x16x16
ic256id8ih16oc256kd3pd1           1  3x3x3 256->256, 8x16x16
ic256id16ih32oc256kd2sd2          1  2x2x2 s2 256, 8x16x16 up (transposed)
ic384id16ih32oc128kd3pd1          1  3x3x3 384->128, 16x32x32
ic128id16ih32oc128kd3pd1          1  3x3x3 128->128, 16x32x32
ic128id32ih64oc128kd2sd2          1  2x2x2 s2 128, 16x32x32 up (transposed)
ic192id32ih64oc64kd3pd1           1  3x3x3 192->64, 32x64x64
ic64id32ih64oc64kd3pd1            1  3x3x3 64->64, 32x64x64
ic64id32ih64oc3kd1                1  1x1x1 64->3, 32x64x64
""")

C3D = _read_table("""
ic3id16ih112oc64kd3pd1            1  3x3x3 3->64, 16x112x112
ic64id16ih56oc128kd3pd1           1  3x3x3 64->128, 16x56x56
ic128id8ih28oc256kd3pd1           1  3x3x3 128->256, 8x28x28
ic256id8ih28oc256kd3pd1           1  3x3x3 256, 8x28x28
ic256id4ih14oc512kd3pd1           1  3x3x3 256->512, 4x14x14
ic512id4ih14oc512kd3pd1           1  3x3x3 512, 4x14x14
ic512id2ih7oc512kd3pd1            2  3x3x3 512, 2x7x7
""")

DEEPLAB = _read_table("""
ic2048ih33oc256kh1                1  1x1 2048->256, 33
ic2048ih33oc256kh3ph6dh5          1  3x3 dilation 6 2048->256, 33
ic2048ih33oc256kh3ph12dh11        1  3x3 dilation 12 2048->256, 33
ic2048ih33oc256kh3ph18dh17        1  3x3 dilation 18 2048->256, 33
ic2048ih1oc256kh1                 1  1x1 2048->256, 1
ic1280ih33oc256kh1                1  1x1 1280->256, 33
""")

DCGAN = _read_table("""
ic1024ih4oc100kh4                 1  4x4 100->1024, 1 up (transposed)
ic512ih8oc1024kh4sh2ph1           1  4x4 s2 1024->512, 4 up (transposed)
ic256ih16oc512kh4sh2ph1           1  4x4 s2 512->256, 8 up (transposed)
ic128ih32oc256kh4sh2ph1           1  4x4 s2 256->128, 16 up (transposed)
ic3ih64oc128kh4sh2ph1             1  4x4 s2 128->3, 32 up (transposed)
""")

TABLE = _read_table("""
ic3ih224oc64kh7sh2ph3             1  conv1 7x7 s2 3->64, 224
ic64ih56oc64kh1                   1  1x1 64->64, 56
ic64ih56oc64kh3ph1                1  3x3 64, 56
ic64ih56oc256kh1                  1  1x1 64->256, 56
ic128ih28oc128kh3ph1              1  3x3 128, 28
ic128ih56oc128kh3sh2ph1           1  3x3 128 s2, 56
ic256ih14oc256kh3ph1              1  3x3 256, 14
ic1024ih14oc256kh1                1  1x1 1024->256, 14
ic512ih7oc512kh3ph1               1  3x3 512, 7
ic256ih33oc256kh3ph6dh5           1  DeepLab 3x3 256 dilation 6, 33
mb4ic64iw4096oc128kw2dw63         1  WaveNet k2 dilation 64 64->128, 4096, N=4
ic1iw80000oc512kw10sw5            1  wav2vec k10 s5 1->512, 80000
mb4ic512iw512oc512kw3pw1          1  1-D k3 512, 512, N=4
ic32id32ih64oc32kd3pd1            1  U-Net 3x3x3 32, 32x64x64
ic64id16ih56oc128kd3pd1           1  C3D 3x3x3 64->128, 16x56x56
g144ic144ih56oc144kh3ph1          1  depthwise 3x3 144, 56
g144ic144ih56oc144kh3sh2ph1       1  depthwise 3x3 144 s2, 56
g384ic384ih14oc384kh3ph1          1  depthwise 3x3 384, 14
g96ic96ih56oc96kh7ph3             1  ConvNeXt depthwise 7x7 96, 56
g32ic128ih56oc128kh3ph1           1  ResNeXt 3x3 128 groups 32, 56
mb4g256ic256iw512oc256kw31pw15    1  Conformer depthwise k31 256, 512, N=4
""")

AWKWARD = _read_table("""
ic37ih28oc37kh3ph1                1  3x3 37, 28
ic53ih28oc53kh3ph1                1  3x3 53, 28
ic150ih28oc150kh3ph1              1  3x3 150, 28
ic256ih14oc1000kh1                1  1x1 256->1000, 14
ic64ih28oc64kh5ph2                1  5x5 64, 28
ic128ih17oc128kh1kw7ph0pw3        1  1x7 128, 17
g3ic192ih28oc192kh3ph1            1  3x3 192 groups 3, 28
g64ic256ih28oc256kh3ph1           1  3x3 256 groups 64, 28
g64ic512ih28oc512kh3ph1           1  3x3 512 groups 64, 28
g96ic96ih56oc96kh5sh2ph2          1  depthwise 5x5 96 s2, 56
g64ic64id16ih28oc64kd3pd1         1  depthwise 3x3x3 64, 16x28x28
g128ic128ih56oc128kh3ph2dh1       1  depthwise 3x3 128 dilation 2, 56
mb4g256ic256iw1024oc256kw4pw3     1  depthwise k4 256, 1024, N=4
ic3ih224oc768kh16sh16             1  patches 16x16 s16 3->768, 224
ic64ih112oc1kh3ph1                1  3x3 64->1, 112
ic1ih112oc64kh3ph1                1  3x3 1->64, 112
ic32ih56oc64kh2sh2                1  2x2 s2 64->32, 28 up (transposed)
ic16ih112oc16kh3ph1               1  3x3 16, 112
""")

SUITES: Mapping[str, Suite] = MappingProxyType(
    {
        "table": Suite("Layers of many kinds, which this package's speed is judged by", TABLE),
        "awkward": Suite("Layers that fit no tile: odd channels, odd kernels, odd groups", AWKWARD),
        "resnet50": Suite("ResNet-50 (v1.5), all 53 convolutions", RESNET50, network=True),
        "mobilenetv2": Suite("MobileNetV2, all 52 convolutions", MOBILENETV2, network=True),
        "convnext": Suite("ConvNeXt-T, all 58 convolutions and layers of 1x1", CONVNEXT, network=True),
        "resnext": Suite("ResNeXt-50 32x4d, all 53 convolutions", RESNEXT, network=True),
        "wavenet": Suite("WaveNet of 30 layers on 4,096 samples, 64 and 128 channels", WAVENET, network=True),
        "wav2vec2": Suite("wav2vec 2.0, feature encoder and position layer on 5 s of sound", WAV2VEC2, network=True),
        "conformer": Suite("Conformer (M), convolutions of 16 blocks on 4 x 512 frames", CONFORMER, network=True),
        "unet3d": Suite("3D U-Net on 32 x 64 x 64 voxels", UNET3D, network=True),
        "c3d": Suite("C3D on 16 frames of 112 x 112", C3D, network=True),
        "deeplab": Suite("DeepLabV3, the pyramid on 33 x 33", DEEPLAB),
        "dcgan": Suite("DCGAN's generator", DCGAN, network=True),
    }
)
"""By the names that the command line takes."""
