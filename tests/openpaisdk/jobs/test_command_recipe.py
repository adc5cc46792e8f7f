"""Recipes of jobs that programs have saved."""

import base64
import pickle
import zlib
from pathlib import Path

from openpaisdk import Job

# Job("saved").one_liner("true", gpu=1, sources=["one.txt"], timeout="2h"), pickled by version 0.5.
SAVED_BY_0_5 = (
    "c-n1KO>Yx15KWt;o202isrXQ7MfnhdOM2zf3rI*18lVSm)ylg&$++2F8-JAMPzf$bNWNkIE@JFWOAq9bcqTLBH}5@v>-_%HZ"
    "pDwgD<ssCaa}CN8Ltao&&OvX^RE4lzJK`_-~FY3?s`%QBXUv3Xmk~Q2Bo>E{bb#BYF2@FUCqv+@UCN)lEQYJwIvlO_+q){2D"
    "Cp7L$K$Dg~%76QeLq+cpSLRCeg&MZ55|MD75jGxxQg~aUx0@a7pQk@j8N8HN9<yjNFa_Ev(AnBPDBXSe-*GZ0FMY$(n1=o8M"
    "jql~Bv$SN^!QZe1@IRmJKe;3N3Tf@fB{4Y)9h={RAaZB}vfMv02x5o_KJ{_z)J^$oA!J*Ogne6XjjbxB@YZ9w^{OHu_n541e"
    "`59_PzuWPnmH;I!bzLp{p(h%p`y9YO>5YPI0L?nGc0)AMP#^!10?y^|`Lo0TfQfx`EMmdwlDo9H)pA!=Q6ZcO&K4iE%C5<4n"
    "^Atr{q}oqft_}4$;lKyPV0Wcdi_r2KNjU>W+7!4xUy-jP=|r~2BiC<8PpiyNv4?#(tN{w@n(;DPgZ8sVS`*Jh$z>Ynlx0lxL"
    "P9cwVOCcPWuhC%o?OuF%aGoXOM_%eIwlH?;t+u+8gdF_ebP8Y)Ak+1=FMF}y0i@1(Wa!H+a}>_JtK$Sw8rS1D`Q!iUI`nv`Y"
    "O~yOGZw^Bm2W=_$h8u!`NIH&)n9kIAtX#GX<10qLjMb@X%E9kY3ao<i@*=G_$-k@rfjp^}rDha1)2CSA!!8Z{arHwhVVjh&v"
    "&DkJ9(UVRy0?q`|%5Y23$`R^vhV<1s$Lr&Ru|@ukgdHvS93!;o7"
)


def test_job_saved_by_version_0_5_has_its_options_and_files(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    job = pickle.loads(zlib.decompress(base64.b85decode(SAVED_BY_0_5)))
    for saved in (job, pickle.loads(pickle.dumps(job))):
        assert isinstance(saved, Job) and saved._recipe is not None
        options = saved._recipe.options
        assert (options.sources, options.gpu, options.time_limit_s) == (["one.txt"], 1, 7200)
        assert saved._recipe.preview() == job.protocol
