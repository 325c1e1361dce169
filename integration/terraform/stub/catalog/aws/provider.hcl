provider {
  optional {
    region                      = string
    profile                     = string
    access_key                  = string
    secret_key                  = string
    token                       = string
    allowed_account_ids         = set(string)
    max_retries                 = number
    retry_mode                  = string
    s3_use_path_style           = bool
    skip_credentials_validation = bool
    skip_metadata_api_check     = string
    skip_region_validation      = bool
    skip_requesting_account_id  = bool
  }
  block "default_tags" {
    nesting = "list"
    optional { tags = map(string) }
  }
  block "ignore_tags" {
    nesting = "list"
    max     = 1
    optional {
      keys         = set(string)
      key_prefixes = set(string)
    }
  }
  block "assume_role" {
    nesting = "list"
    optional {
      role_arn     = string
      session_name = string
      external_id  = string
    }
  }
}
