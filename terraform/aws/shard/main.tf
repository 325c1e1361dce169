# One shard: its servers, the address of whoever leads, and what it is to run.

data "aws_region" "current" {}

data "aws_ssm_parameter" "ami" {
  count = var.vm.ami_id == null ? 1 : 0
  name = coalesce(
    var.vm.ami_parameter,
    "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-${var.vm.arch == "amd64" ? "x86_64" : "arm64"}",
  )
}

locals {
  name   = "nstance-${var.cluster.id}-${var.shard}"
  region = data.aws_region.current.region

  # Whose something is. The servers' machines have these tags and no more: what has nstance:managed
  # besides is the leader's to change, and an instance with it that no record names is deleted.
  scope = { "nstance:cluster-id" = var.cluster.id, "nstance:shard" = var.shard }
  tags  = merge(var.tags, local.scope, { Name = local.name })
  moved = merge(local.tags, { "nstance:managed" = "true" })
}
