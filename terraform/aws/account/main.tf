# The AWS identities of a cluster's servers and instances. Their policies are generated, together with docs/aws-iam.json, from the
# table of calls that the code makes: nothing is added here.

data "aws_caller_identity" "current" {}

data "aws_partition" "current" {}

data "aws_region" "current" {}

locals {
  prefix = coalesce(var.name_prefix, "nstance-${var.cluster_id}")
  tags   = merge(var.tags, { "nstance:cluster-id" = var.cluster_id })

  roles_arn = "arn:${data.aws_partition.current.partition}:iam::${data.aws_caller_identity.current.account_id}:role"
  facts = {
    partition   = data.aws_partition.current.partition
    region      = data.aws_region.current.region
    account     = data.aws_caller_identity.current.account_id
    bucket      = var.bucket
    cluster_id  = var.cluster_id
    key_arn     = var.encryption_key_arn
    kms_key_arn = var.kms_key_arn == null ? "" : var.kms_key_arn
    # Composed here, so that a plan shows the policies before the roles exist.
    agent_role_arn = "${local.roles_arn}${var.path}${local.prefix}-agent"
  }

  # Only what is needed is allowed.
  secrets = {
    secrets-manager = var.secrets_manager_prefix
    parameter-store = var.parameter_store_prefix
  }
  wanted = merge(
    { server = "server", key = "server", asg = "server", agent = "agent" },
    { for name in ["snapshots"] : name => "server" if var.allow_snapshots },
    { for name, prefix in local.secrets : name => "server" if prefix != null },
  )

  # IAM refuses a policy without statements. They are counted in the file, where nothing is unknown yet.
  policies = {
    for name, role in local.wanted : name => role
    if length(jsondecode(file("${path.module}/policies/${name}.json")).Statement) > 0
  }

  documents = {
    for name in concat(["kms"], keys(local.policies)) : name => templatefile("${path.module}/policies/${name}.json", merge(local.facts, {
      secret_prefix = lookup(local.secrets, name, "")
      secret_region = coalesce(var.secrets_region, data.aws_region.current.region)
    }))
  }

  # The statements for a KMS key are part of another policy: whether there is a key may be unknown in a plan, as its ARN is, and the
  # number of policies may not.
  key_policy = jsonencode(merge(jsondecode(local.documents.key), { Statement = concat(
    jsondecode(local.documents.key).Statement, [for s in jsondecode(local.documents.kms).Statement : s if var.kms_key_arn != null],
  ) }))

  assume_role = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect = "Allow"
      Action = "sts:AssumeRole"
      # China also has its own name for EC2; other partitions refuse names with their own domains.
      Principal = { Service = local.facts.partition == "aws-cn" ? ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"] : ["ec2.amazonaws.com"] }
    }]
  })

  roles = {
    server = "Nstance: servers of the cluster ${var.cluster_id}"
    agent  = "Nstance: instances of the cluster ${var.cluster_id}"
  }
}

resource "aws_iam_role" "role" {
  for_each = local.roles

  name                 = "${local.prefix}-${each.key}"
  path                 = var.path
  description          = each.value
  assume_role_policy   = local.assume_role
  permissions_boundary = var.permissions_boundary_arn
  tags                 = local.tags
}

resource "aws_iam_role_policy" "policy" {
  for_each = local.policies

  name   = each.key
  role   = aws_iam_role.role[each.value].name
  policy = each.key == "key" ? local.key_policy : local.documents[each.key]
}

resource "aws_iam_instance_profile" "profile" {
  for_each = local.roles

  name = "${local.prefix}-${each.key}"
  path = var.path
  role = aws_iam_role.role[each.key].name
  tags = local.tags
}
