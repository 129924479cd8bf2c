"""Schemas of public tables, from their documentation: categories from `adult.names` and the UCI pages, round bounds."""

from __future__ import annotations

from hush.data.schema import Category, Number, Schema

_COUNTRIES = (
    "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), India, Japan, Greece, "
    "South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, Portugal, Ireland, "
    "France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, Nicaragua, Scotland, "
    "Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands"
)
_EDUCATION = (
    "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, Masters, 1st-4th, "
    "10th, Doctorate, 5th-6th, Preschool"
)
_WORK = (
    "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, Never-worked",
    "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, Handlers-cleaners, "
    "Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, Protective-serv, "
    "Armed-Forces",
)
_MARRIAGE = (
    "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, Married-AF-spouse",
    "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
)
ADULT_COLUMNS = (
    *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation", "relationship"),
    *("race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country", "income"),
)


def _category(name: str, values: str) -> Category:
    return Category(name, tuple(values.split(", ")))


def _steps(start: int, stop: int, step: int) -> tuple[float, ...]:
    return tuple(float(value) for value in range(start, stop, step))


ADULT = Schema(
    target=Category("income", ("<=50K", ">50K")),
    columns=(
        Number("age", 0, 120, cuts=_steps(20, 75, 5)),
        _category("workclass", _WORK[0]),
        _category("education", _EDUCATION),
        _category("marital-status", _MARRIAGE[0]),
        _category("occupation", _WORK[1]),
        _category("relationship", _MARRIAGE[1]),
        _category("race", "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black"),
        _category("sex", "Female, Male"),
        Number("capital-gain", 0, 100_000, cuts=(1.0, 2_000.0, 4_000.0, 6_000.0, 8_000.0, 12_000.0, 20_000.0)),
        Number("capital-loss", 0, 10_000, cuts=(1.0, 1_000.0, 1_500.0, 1_750.0, 2_000.0, 2_500.0)),
        Number("hours-per-week", 0, 168, cuts=_steps(10, 75, 5)),
        _category("native-country", _COUNTRIES),
    ),
)

# The groups of ICD-9 codes of Strack et al. 2014, Table 2.
DIAGNOSES = (
    *("circulatory", "respiratory", "digestive", "diabetes", "injury", "musculoskeletal", "genitourinary"),
    "neoplasms",
)
_MEDICINES = (
    *("metformin", "repaglinide", "nateglinide", "glimepiride", "glipizide", "glyburide", "pioglitazone"),
    *("rosiglitazone", "acarbose", "insulin"),
)
_AGES = tuple(f"[{age}-{age + 10})" for age in range(0, 100, 10))
_IDS = {"admission_type_id": 8, "discharge_disposition_id": 30, "admission_source_id": 26}
_SPECIALTIES = (
    "InternalMedicine, Emergency/Trauma, Family/GeneralPractice, Cardiology, Surgery-General, Nephrology, Orthopedics, "
    "Radiologist, Pulmonology, Psychiatry"
)

DIABETES = Schema(
    target=Category("readmitted", ("NO", ">30", "<30")),
    columns=(
        _category("race", "Caucasian, AfricanAmerican, Hispanic, Asian, Other"),
        _category("gender", "Female, Male"),
        Category("age", _AGES),
        *(Category(name, tuple(map(str, range(1, most + 1)))) for name, most in _IDS.items()),
        Number("time_in_hospital", 0, 14),
        _category("medical_specialty", _SPECIALTIES),
        Number("num_lab_procedures", 0, 100),
        Number("num_procedures", 0, 6),
        Number("num_medications", 0, 50),
        *(
            Number(name, 0, 50, cuts=(1.0, 2.0, 3.0, 5.0))
            for name in ("number_outpatient", "number_emergency", "number_inpatient")
        ),
        *(Category(name, DIAGNOSES) for name in ("diag_1", "diag_2", "diag_3")),
        Number("number_diagnoses", 0, 16),
        _category("max_glu_serum", "None, Norm, >200, >300"),
        _category("A1Cresult", "None, Norm, >7, >8"),
        *(_category(name, "No, Steady, Up, Down") for name in _MEDICINES),
        _category("change", "No, Ch"),
        _category("diabetesMed", "No, Yes"),
    ),
    person="patient_nbr",
)


def diagnosis_group(code: str) -> str:
    """The group of an ICD-9 code; "other" is not in `DIAGNOSES` and becomes the schema's own "other".

    >>> diagnosis_group("250.83"), diagnosis_group("428"), diagnosis_group("V27")
    ('diabetes', 'circulatory', 'other')
    """
    try:
        number = int(code.split(".")[0])
    except ValueError:
        return "other"
    extra = {785: "circulatory", 786: "respiratory", 787: "digestive", 788: "genitourinary", 250: "diabetes"}
    if number in extra:
        return extra[number]
    ranges = (
        *((390, 459, "circulatory"), (460, 519, "respiratory"), (520, 579, "digestive"), (580, 629, "genitourinary")),
        *((140, 239, "neoplasms"), (710, 739, "musculoskeletal"), (800, 999, "injury")),
    )
    return next((name for low, high, name in ranges if low <= number <= high), "other")


HOUSING = Schema(
    target=Number("median_house_value", 0, 500_000),
    columns=(
        Number("longitude", -125, -114, cuts=tuple(-124.5 + 0.5 * step for step in range(21))),
        Number("latitude", 32, 42, cuts=tuple(32.5 + 0.5 * step for step in range(19))),
        Number("housing_median_age", 0, 60),
        Number("total_rooms", 0, 20_000),
        Number("total_bedrooms", 0, 4_000),
        Number("population", 0, 10_000),
        Number("households", 0, 4_000),
        Number("median_income", 0, 15, cuts=tuple(0.5 + 0.5 * step for step in range(20))),
        Category("ocean_proximity", ("<1H OCEAN", "INLAND", "NEAR OCEAN", "NEAR BAY", "ISLAND")),
    ),
)
