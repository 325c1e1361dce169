resource "aws_s3_bucket" {
  region = true
  tags   = "settled"
  optional { force_destroy = bool }
  settled {
    bucket              = string
    bucket_prefix       = string
    id                  = string
    object_lock_enabled = bool
  }
  computed {
    arn                         = string
    bucket_domain_name          = string
    bucket_region               = string
    bucket_regional_domain_name = string
    hosted_zone_id              = string
  }
  values {
    bucket                      = "${coalesce(bucket_prefix, "terraform-")}${digits(26)}"
    id                          = bucket
    arn                         = arn("s3", bucket)
    bucket_domain_name          = "${bucket}.s3.${suffix()}"
    bucket_region               = region
    bucket_regional_domain_name = "${bucket}.s3.${region}.${suffix()}"
    hosted_zone_id              = "Z${letters(13)}"
  }
}

resource "aws_s3_bucket_public_access_block" {
  region = true
  required { bucket = string }
  optional {
    block_public_acls       = bool
    block_public_policy     = bool
    ignore_public_acls      = bool
    restrict_public_buckets = bool
    skip_destroy            = bool
  }
  settled { id = string }
  values { id = bucket }
}

resource "aws_s3_bucket_server_side_encryption_configuration" {
  region = true
  required { bucket = string }
  settled { id = string }
  values { id = bucket }
  block "rule" {
    nesting = "set"
    min     = 1
    settled { bucket_key_enabled = bool }
    block "apply_server_side_encryption_by_default" {
      nesting = "list"
      max     = 1
      required { sse_algorithm = string }
      settled { kms_master_key_id = string }
    }
  }
}

resource "aws_s3_bucket_versioning" {
  region = true
  required { bucket = string }
  optional {
    mfa = string
  }
  settled { id = string }
  values { id = bucket }
  block "versioning_configuration" {
    nesting = "list"
    min     = 1
    max     = 1
    required { status = string }
    settled { mfa_delete = string }
  }
}

resource "aws_s3_bucket_lifecycle_configuration" {
  region = true
  required { bucket = string }
  settled {
    transition_default_minimum_object_size = string
  }
  values {
    transition_default_minimum_object_size = "all_storage_classes_128K"
  }
  block "rule" {
    nesting = "list"
    required {
      id     = string
      status = string
    }
    block "filter" {
      nesting = "list"
      settled {
        object_size_greater_than = number
        object_size_less_than    = number
        prefix                   = string
      }
      block "and" {
        nesting = "list"
        settled {
          object_size_greater_than = number
          object_size_less_than    = number
          prefix                   = string
        }
        optional { tags = map(string) }
      }
      block "tag" {
        nesting = "list"
        required {
          key   = string
          value = string
        }
      }
    }
    block "expiration" {
      nesting = "list"
      optional { date = string }
      settled {
        days                         = number
        expired_object_delete_marker = bool
      }
    }
    block "noncurrent_version_expiration" {
      nesting = "list"
      required { noncurrent_days = number }
      optional { newer_noncurrent_versions = number }
    }
    block "abort_incomplete_multipart_upload" {
      nesting = "list"
      optional { days_after_initiation = number }
    }
  }
  block "timeouts" {
    nesting = "single"
    optional {
      create = string
      update = string
    }
  }
}

resource "aws_s3_bucket_ownership_controls" {
  region = true
  required { bucket = string }
  settled { id = string }
  values { id = bucket }
  block "rule" {
    nesting = "list"
    min     = 1
    max     = 1
    required { object_ownership = string }
  }
}

resource "aws_s3_bucket_policy" {
  region = true
  required {
    bucket = string
    policy = string
  }
  settled { id = string }
  values { id = bucket }
}

resource "aws_s3_object" {
  region  = true
  tags    = "settled"
  changes = ["etag", "version_id"]
  required {
    bucket = string
    key    = string
  }
  optional {
    cache_control      = string
    checksum_algorithm = string
    content            = string
    content_base64     = string
    force_destroy      = bool
    metadata           = map(string)
    source             = string
    source_hash        = string
  }
  settled {
    acl                    = string
    bucket_key_enabled     = bool
    content_type           = string
    etag                   = string
    id                     = string
    kms_key_id             = string
    server_side_encryption = string
    storage_class          = string
  }
  computed {
    arn        = string
    version_id = string
  }
  values {
    id                     = "${bucket}/${key}"
    arn                    = arn("s3", "${bucket}/${key}")
    content_type           = "application/octet-stream"
    etag                   = md5(coalesce(content, content_base64, source, "empty"))
    server_side_encryption = "AES256"
    storage_class          = "STANDARD"
    version_id             = letters(32)
  }
}
