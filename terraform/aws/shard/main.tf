# One shard: its servers, the leader's address, and its config.

data "aws_region" "current" {}

data "aws_ssm_parameter" "ami" {
  count = var.server_ami_id == null ? 1 : 0
  name = coalesce(
    var.server_ami_parameter,
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-${var.server_arch == "amd64" ? "x86_64" : "arm64"}",
  )
}

locals {
  name   = "nstance-${var.cluster_id}-${var.shard}"
  region = data.aws_region.current.region

  # The tags of the owner. The servers' machines only have these: a leader may change resources with nstance:managed, and deletes
  # instances with that tag that are in no record.
  scope = { "nstance:cluster-id" = var.cluster_id, "nstance:shard" = var.shard }
  tags  = merge(var.tags, local.scope, { Name = local.name })
  moved = merge(local.tags, { "nstance:managed" = "true" })
}
