variable "name" {
  type        = string
  description = "Name of the secret."
  nullable    = false

  validation {
    condition     = can(regex("^[A-Za-z0-9/_+=.@-]{1,512}$", var.name))
    error_message = "name: want 1 to 512 letters, digits and characters of /_+=.@-"
  }
}

variable "kms_key_arn" {
  type        = string
  description = "ARN of the KMS key that encrypts the secret. `null` means the account's default key of Secrets Manager."
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:[a-z-]+:kms:", var.kms_key_arn))
    error_message = "kms_key_arn: want the ARN of a KMS key, such as arn:aws:kms:eu-central-1:123456789012:key/0f1e2d3c"
  }
}

variable "recovery_window_days" {
  type        = number
  description = "Days for which the secret can be restored after it was deleted: 7 to 30, or 0 to delete it at once."
  default     = 30
  nullable    = false

  validation {
    condition     = var.recovery_window_days == 0 || (var.recovery_window_days >= 7 && var.recovery_window_days <= 30)
    error_message = "recovery_window_days: want 0, or 7 to 30"
  }
}

variable "tags" {
  type        = map(string)
  description = "Tags of the secret."
  default     = {}
  nullable    = false
}
