"""What every table of settings has in common: an unknown key is an error, and numbers have bounds.

It knows none of their keys.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """A table of settings; a key that is not in it is an error."""

    # Each model is compiled when it is first used, and most are only used as a part of another one.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=True)
