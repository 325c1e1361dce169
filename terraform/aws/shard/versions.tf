terraform {
  # Write-only attributes and ephemeral resources begin with 1.11, of Terraform and of OpenTofu.
  required_version = ">= 1.11"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 6.40, < 7"
    }
  }
}
