resource "aws_iam_role" {
  tags = "settled"
  required { assume_role_policy = string }
  optional {
    description           = string
    force_detach_policies = bool
    max_session_duration  = number
    path                  = string
    permissions_boundary  = string
  }
  settled {
    id          = string
    name        = string
    name_prefix = string
  }
  computed {
    arn         = string
    create_date = string
    unique_id   = string
  }
  values {
    name        = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    id          = name
    arn         = arn("iam", "role${coalesce(path, "/")}${name}")
    create_date = "2026-01-01T00:00:00Z"
    unique_id   = "AROA${letters(17)}"
  }
}

resource "aws_iam_role_policy" {
  required {
    policy = string
    role   = string
  }
  settled {
    id          = string
    name        = string
    name_prefix = string
  }
  values {
    name = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    id   = "${role}:${name}"
  }
}

resource "aws_iam_policy" {
  tags = "settled"
  required { policy = string }
  optional {
    description = string
    path        = string
  }
  settled {
    id          = string
    name        = string
    name_prefix = string
  }
  computed {
    arn              = string
    attachment_count = number
    policy_id        = string
  }
  values {
    name      = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    arn       = arn("iam", "policy${coalesce(path, "/")}${name}")
    id        = arn
    policy_id = "ANPA${letters(17)}"
  }
}

resource "aws_iam_role_policy_attachment" {
  required {
    policy_arn = string
    role       = string
  }
  settled { id = string }
  values { id = "${role}/${policy_arn}" }
}

resource "aws_iam_instance_profile" {
  tags = "settled"
  optional {
    path = string
    role = string
  }
  settled {
    id          = string
    name        = string
    name_prefix = string
  }
  computed {
    arn         = string
    create_date = string
    unique_id   = string
  }
  values {
    name        = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    id          = name
    arn         = arn("iam", "instance-profile${coalesce(path, "/")}${name}")
    create_date = "2026-01-01T00:00:00Z"
    unique_id   = "AIPA${letters(17)}"
  }
}
