# Who the servers and the instances of a cluster are for AWS. What they may do is generated, with
# docs/aws-iam.json, from the table of calls that the code makes: nothing is added here.

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
    kms_key_arn = try(var.kms_key.arn, "")
    # Written out, so that a plan shows what the policies say before there are roles.
    agent_role_arn = "${local.roles_arn}${var.path}${local.prefix}-agent"
  }

  # What is not needed is not allowed.
  secrets = {
    secrets-manager = var.secret_prefixes.secrets_manager
    parameter-store = var.secret_prefixes.parameter_store
  }
  wanted = merge(
    { server = "server", key = "server", asg = "server", agent = "agent" },
    { for name in ["kms"] : name => "server" if var.kms_key != null },
    { for name, prefix in local.secrets : name => "server" if prefix != null },
  )

  # IAM refuses a policy without statements. So that is looked at as it is written, where nothing
  # is unknown yet.
  policies = {
    for name, role in local.wanted : name => role
    if length(jsondecode(file("${path.module}/policies/${name}.json")).Statement) > 0
  }

  assume_role = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect = "Allow"
      Action = "sts:AssumeRole"
      # China has a name of its own for EC2 beside the one of everywhere; other partitions refuse names with their own domains.
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

  name = each.key
  role = aws_iam_role.role[each.value].name
  policy = templatefile("${path.module}/policies/${each.key}.json", merge(local.facts, {
    secret_prefix = lookup(local.secrets, each.key, "")
    secret_region = coalesce(var.secret_prefixes.region, data.aws_region.current.region)
  }))
}

resource "aws_iam_instance_profile" "profile" {
  for_each = local.roles

  name = "${local.prefix}-${each.key}"
  path = var.path
  role = aws_iam_role.role[each.key].name
  tags = local.tags
}
