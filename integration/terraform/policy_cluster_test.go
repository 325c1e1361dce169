//go:build integration

package terraform_test

import (
	"errors"
	"fmt"
	"strings"
)

func clusterPolicies() []policy {
	return []policy{
		{"the bucket's public access is blocked", "cluster", publicAccessBlocked, []mutation{
			{"cluster/main.tf", "block_public_acls       = true", ""},
			{"cluster/main.tf", "block_public_policy     = true", "block_public_policy = false"},
			{"cluster/main.tf", "ignore_public_acls      = true", ""},
			{"cluster/main.tf", "restrict_public_buckets = true", ""},
		}},
		{"the bucket is encrypted", "cluster", bucketEncrypted("AES256", ""), []mutation{
			{"cluster/main.tf", `"AES256" : "aws:kms"`, `"aws:kms" : "AES256"`},
		}},
		{"the bucket is encrypted with the key that is given", "own key", bucketEncrypted("aws:kms", kmsARN), []mutation{
			{"cluster/main.tf", "kms_master_key_id = var.kms_key_arn", ""},
		}},
		{"the bucket is reached by TLS only", "cluster", func(m made) error {
			return denied(m, "s3:*", `"aws:SecureTransport":"false"`)
		}, []mutation{{"cluster/policy.tf", `"aws:SecureTransport" = "false"`, `"aws:SecureTransport" = "true"`}}},
		{"the bucket keeps versions", "cluster", versioned, []mutation{
			{"cluster/main.tf", `status = "Enabled"
  }
}`, `status = "Suspended"
  }
}`},
		}},
		{"versions that are current no more expire", "cluster", versionsExpire, []mutation{
			{"cluster/main.tf", "noncurrent_version_expiration {\n      noncurrent_days = var.noncurrent_days\n    }", ""},
			{"cluster/main.tf", `id     = "expire-former-versions"
    status = "Enabled"`, `id     = "expire-former-versions"
    status = "Disabled"`},
			{"cluster/main.tf", "filter {}", `filter { prefix = "lease/" }`},
		}},
		{"the bucket is protected from deletion", "cluster", protected, []mutation{
			{"cluster/main.tf", "force_destroy = !var.deletion_protection", "force_destroy = true"},
			{"cluster/policy.tf", `Action    = "s3:DeleteBucket"`, `Action    = "s3:PutBucketTagging"`},
			{"cluster/variables.tf", "objects in it.\n  EOT\n  default     = true", "objects in it.\n  EOT\n  default     = false"},
		}},
		{"a bucket without protection can be deleted", "own key", func(m made) error {
			bucket, err := m.one("aws_s3_bucket")
			if denied(m, "s3:DeleteBucket", "") == nil {
				err = errors.New("its policy denies that")
			}
			return errors.Join(err, bucket.want(map[string]string{"force_destroy": "true"}))
		}, []mutation{{"cluster/policy.tf", "s if var.deletion_protection]", "s]"}}},
		{"the encryption key is made, and in no state and no plan", "cluster", keyUnseen, []mutation{
			{"cluster/modules/key/main.tf", "secret_string_wo = ephemeral.aws_secretsmanager_random_password.key.random_password",
				`secret_string = "fleeting-by-hand"`},
			{"cluster/modules/key/main.tf", "secret_string_wo = ephemeral.aws_secretsmanager_random_password.key.random_password", ""},
		}},
		{"a key of the caller's is used as it is", "own key", ownKey, []mutation{
			{"cluster/key.tf", "count  = var.create_encryption_key ? 1 : 0", "count = 1"},
			{"cluster/outputs.tf", "var.create_encryption_key ? one(module.key[*].arn) : var.encryption_key_arn", `"arn:aws:ssm:other"`},
		}},
	}
}

func publicAccessBlocked(m made) error {
	bucket, err1 := m.one("aws_s3_bucket")
	block, err2 := m.one("aws_s3_bucket_public_access_block")
	return errors.Join(err1, err2, block.want(map[string]string{
		"bucket": bucket.text("bucket"), "block_public_acls": "true", "block_public_policy": "true",
		"ignore_public_acls": "true", "restrict_public_buckets": "true",
	}))
}

func bucketEncrypted(algorithm, key string) func(made) error {
	return func(m made) error {
		bucket, err1 := m.one("aws_s3_bucket")
		encryption, err2 := m.one("aws_s3_bucket_server_side_encryption_configuration")
		const by = "rule.0.apply_server_side_encryption_by_default.0."
		return errors.Join(err1, err2, encryption.want(map[string]string{
			"bucket": bucket.text("bucket"), by + "sse_algorithm": algorithm, by + "kms_master_key_id": key,
		}))
	}
}

// denied reports whether the bucket's policy denies an action to all principals.
func denied(m made, action, condition string) error {
	bucket, err1 := m.one("aws_s3_bucket")
	policy, err2 := m.one("aws_s3_bucket_policy")
	statements, err3 := statements(policy.text("policy"))
	if err := errors.Join(err1, err2, err3, policy.want(map[string]string{"bucket": bucket.text("bucket")})); err != nil {
		return err
	}
	for _, one := range statements {
		if one.Effect == "Deny" && string(one.Principal) == `"*"` && strings.Join(one.Action, "") == action &&
			strings.Contains(string(one.Condition), condition) && strings.Contains(strings.Join(one.Resource, " "), bucket.text("arn")) {
			return nil
		}
	}
	return fmt.Errorf("%s is not denied", action)
}

func versioned(m made) error {
	bucket, err1 := m.one("aws_s3_bucket")
	versions, err2 := m.one("aws_s3_bucket_versioning")
	return errors.Join(err1, err2, versions.want(map[string]string{
		"bucket": bucket.text("bucket"), "versioning_configuration.0.status": "Enabled",
	}))
}

func versionsExpire(m made) error {
	bucket, err1 := m.one("aws_s3_bucket")
	life, err2 := m.one("aws_s3_bucket_lifecycle_configuration")
	if prefix := life.text("rule.0.filter.0.prefix"); prefix != "" {
		return fmt.Errorf("only below %q", prefix)
	}
	return errors.Join(err1, err2, life.want(map[string]string{
		"bucket": bucket.text("bucket"), "rule.0.status": "Enabled", "rule.0.noncurrent_version_expiration.0.noncurrent_days": "7",
	}))
}

func protected(m made) error {
	bucket, err := m.one("aws_s3_bucket")
	return errors.Join(err, bucket.want(map[string]string{"force_destroy": "false"}), denied(m, "s3:DeleteBucket", ""))
}

// keyUnseen looks for the prefix of the stub's passwords.
func keyUnseen(m made) error {
	secret, err1 := m.one("aws_secretsmanager_secret")
	version, err2 := m.one("aws_secretsmanager_secret_version")
	if err := errors.Join(err1, err2, version.want(map[string]string{
		"secret_id": secret.text("id"), "has_secret_string_wo": "true", "secret_string": "", "secret_binary": "",
	})); err != nil {
		return err
	}
	if strings.Contains(m.written, "fleeting-") {
		return errors.New("Terraform has written the key down")
	}
	return nil
}

func ownKey(m made) error {
	if made := m.all("aws_secretsmanager_secret"); len(made) > 0 {
		return fmt.Errorf("%s is made", made[0].Address)
	}
	outputs, _ := m.Outputs["cluster"].Value.(map[string]any)
	if got := outputs["encryption_key_arn"]; got != keyARN {
		return fmt.Errorf("the output is %v, want %s", got, keyARN)
	}
	return nil
}
