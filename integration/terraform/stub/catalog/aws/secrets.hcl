resource "aws_secretsmanager_secret" {
  region = true
  tags   = "settled"
  optional {
    description                    = string
    force_overwrite_replica_secret = bool
    kms_key_id                     = string
    recovery_window_in_days        = number
  }
  settled {
    id          = string
    name        = string
    name_prefix = string
    policy      = string
  }
  computed { arn = string }
  values {
    name = "${coalesce(name_prefix, "terraform-")}${digits(26)}"
    arn  = arn("secretsmanager", "secret:${name}-${letters(6)}")
    id   = arn
  }
}

resource "aws_secretsmanager_secret_version" {
  region    = true
  sensitive = ["secret_binary", "secret_string", "secret_string_wo"]
  required { secret_id = string }
  optional {
    secret_binary            = string
    secret_string            = string
    secret_string_wo_version = number
  }
  write_only { secret_string_wo = string }
  settled {
    id             = string
    version_stages = set(string)
  }
  computed {
    has_secret_string_wo = bool
    version_id           = string
  }
  values {
    has_secret_string_wo = secret_string_wo != null
    version_id           = "terraform-${digits(26)}"
    id                   = "${secret_id}|${version_id}"
    version_stages       = ["AWSCURRENT"]
  }
}

ephemeral "aws_secretsmanager_random_password" {
  region    = true
  sensitive = ["random_password"]
  optional {
    exclude_characters         = string
    exclude_lowercase          = bool
    exclude_numbers            = bool
    exclude_punctuation        = bool
    exclude_uppercase          = bool
    include_space              = bool
    password_length            = number
    require_each_included_type = bool
  }
  computed { random_password = string }
  # Whatever keeps it is found by how it begins.
  values { random_password = "fleeting-${letters(coalesce(password_length, 32) - 9)}" }
}
