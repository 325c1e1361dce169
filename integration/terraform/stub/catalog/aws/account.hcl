data "aws_caller_identity" {
  settled { id = string }
  computed {
    account_id = string
    arn        = string
    user_id    = string
  }
  values {
    id         = account()
    account_id = account()
    user_id    = "AIDA${letters(17)}"
    arn        = arn("iam", "user/stub")
  }
}

data "aws_partition" {
  computed {
    partition          = string
    dns_suffix         = string
    reverse_dns_prefix = string
  }
  values {
    partition          = partition()
    dns_suffix         = suffix()
    reverse_dns_prefix = reverse_suffix()
  }
}

data "aws_region" {
  settled {
    region   = string
    endpoint = string
  }
  computed {
    description = string
  }
  values {
    endpoint    = "ec2.${region}.${suffix()}"
    description = region
  }
}

data "aws_availability_zones" {
  region = true
  optional {
    all_availability_zones = bool
    exclude_names          = set(string)
    exclude_zone_ids       = set(string)
    state                  = string
  }
  settled { id = string }
  computed {
    group_names = set(string)
    names       = list(string)
    zone_ids    = list(string)
  }
  values {
    id          = region
    group_names = [region]
    names       = ["${region}a", "${region}b", "${region}c"]
    zone_ids    = ["${replace(region, "-", "")}-az1", "${replace(region, "-", "")}-az2", "${replace(region, "-", "")}-az3"]
  }
  block "filter" {
    nesting = "set"
    required {
      name   = string
      values = set(string)
    }
  }
  block "timeouts" {
    nesting = "single"
    optional { read = string }
  }
}

data "aws_ssm_parameter" {
  region = true
  required { name = string }
  optional { with_decryption = bool }
  settled { id = string }
  computed {
    arn            = string
    insecure_value = string
    type           = string
    value          = string
    version        = number
  }
  sensitive = ["value"]
  values {
    id             = name
    arn            = arn("ssm", "parameter${name}")
    insecure_value = "ami-${hex(17)}"
    type           = "String"
    value          = "ami-${hex(17)}"
    version        = 1
  }
}

data "aws_ami" {
  region = true
  optional { owners = list(string) }
  settled { id = string }
  computed {
    architecture  = string
    arn           = string
    creation_date = string
    image_id      = string
    name          = string
    owner_id      = string
    state         = string
  }
  values {
    image_id      = concat([for f in filter : [for v in f.values : v][0] if f.name == "image-id"], ["ami-${hex(17)}"])[0]
    id            = image_id
    arn           = "arn:${partition()}:ec2:${region}::image/${image_id}"
    architecture  = "arm64"
    creation_date = "2026-03-02T21:14:07.000Z"
    name          = "al2023-ami-2023.9.20260302.1-kernel-6.12-arm64"
    owner_id      = "137112412989"
    state         = "available"
  }
  block "filter" {
    nesting = "set"
    required {
      name   = string
      values = set(string)
    }
  }
}
