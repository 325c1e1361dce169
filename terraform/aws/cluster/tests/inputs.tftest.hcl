# What the module answers to inputs that are not valid. What it makes of valid ones is tested from
# plans, in integration/terraform.

# No mock stands in for a provider with ephemeral resources. So this is the real one, in a plan
# that asks AWS nothing.
provider "aws" {
  region                      = "eu-central-1"
  access_key                  = "none"
  secret_key                  = "none"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_requesting_account_id  = true
}

override_data {
  target = data.aws_caller_identity.current
  values = { account_id = "123456789012" }
}

variables {
  cluster_id            = "example"
  create_encryption_key = false
  encryption_key_arn    = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:key-AbCdEf"
}

run "a_cluster_id_with_capitals" {
  command = plan
  variables { cluster_id = "Example" }
  expect_failures = [var.cluster_id]
}

run "a_cluster_id_of_33_characters" {
  command = plan
  variables { cluster_id = "a23456789012345678901234567890123" }
  expect_failures = [var.cluster_id]
}

run "no_key_at_all" {
  command = plan
  variables { encryption_key_arn = null }
  expect_failures = [var.encryption_key_arn]
}

run "two_keys" {
  command = plan
  variables { create_encryption_key = true }
  expect_failures = [var.encryption_key_arn]
}

run "a_key_that_is_no_secret" {
  command = plan
  variables { encryption_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c" }
  expect_failures = [var.encryption_key_arn]
}

run "versions_for_ever" {
  command = plan
  variables { noncurrent_days = 0 }
  expect_failures = [var.noncurrent_days]
}

run "a_key_of_the_caller_makes_none" {
  command = plan

  assert {
    condition     = output.encryption_key_arn == var.encryption_key_arn
    error_message = "the output names ${output.encryption_key_arn}"
  }
}
