# What the module answers to inputs that are not valid.

mock_provider "aws" {}

variables {
  cluster_id         = "example"
  bucket             = "nstance-example-123456789012"
  encryption_key_arn = "arn:aws:secretsmanager:eu-central-1:123456789012:secret:key-AbCdEf"
}

run "a_cluster_id_with_a_star" {
  command = plan
  variables { cluster_id = "*" }
  expect_failures = [var.cluster_id]
}

run "a_bucket_with_a_star" {
  command = plan
  variables { bucket = "nstance-*" }
  expect_failures = [var.bucket]
}

run "a_key_by_name" {
  command = plan
  variables { encryption_key_arn = "nstance/example/encryption-key" }
  expect_failures = [var.encryption_key_arn]
}

run "a_path_without_its_end" {
  command = plan
  variables { path = "/nstance" }
  expect_failures = [var.path]
}

run "a_kms_key_by_alias" {
  command = plan
  variables { kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:alias/nstance" }
  expect_failures = [var.kms_key_arn]
}

run "a_prefix_with_a_star" {
  command = plan
  variables { secrets_manager_prefix = "nstance/*" }
  expect_failures = [var.secrets_manager_prefix]
}

run "a_prefix_that_others_begin_with" {
  command = plan
  variables { parameter_store_prefix = "nstance/prod" }
  expect_failures = [var.parameter_store_prefix]
}

run "secrets_in_no_region" {
  command = plan
  variables {
    secrets_manager_prefix = "nstance/example/"
    secrets_region         = "Frankfurt"
  }
  expect_failures = [var.secrets_region]
}

run "rights_only_for_what_is_used" {
  command = plan

  assert {
    condition     = toset(keys(aws_iam_role_policy.policy)) == toset(["asg", "key", "server"])
    error_message = "the policies are ${join(", ", keys(aws_iam_role_policy.policy))}"
  }
  assert {
    condition     = !strcontains(aws_iam_role_policy.policy["key"].policy, "kms:")
    error_message = "a KMS key is in ${aws_iam_role_policy.policy["key"].policy}"
  }
}

run "rights_for_a_kms_key" {
  command = plan
  variables { kms_key_arn = "arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c" }

  assert {
    condition     = strcontains(aws_iam_role_policy.policy["key"].policy, "arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c")
    error_message = "the key is not in ${aws_iam_role_policy.policy["key"].policy}"
  }
}
