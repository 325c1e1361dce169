# One shard in one zone: a server and three web machines. docs/aws.md goes through it.
# Outside of a clone, use a pinned version:
#   source = "git::https://github.com/nstance/nstance.git//terraform/aws/cluster?ref=v0.1.0"

provider "aws" {
  region = "us-east-1"
}

variable "release" {
  type        = object({ url = string, sha256 = string })
  description = "The archive nstance_{version}_linux_arm64.tar.gz: its URL and its SHA-256."
}

module "cluster" {
  source     = "../../aws/cluster"
  cluster_id = "example"
}

module "account" {
  source             = "../../aws/account"
  cluster_id         = module.cluster.id
  bucket             = module.cluster.bucket
  encryption_key_arn = module.cluster.encryption_key_arn
}

module "network" {
  source     = "../../aws/network"
  name       = "example"
  cluster_id = module.cluster.id
  vpc_cidr   = "10.0.0.0/16"
  subnets = {
    servers = { role = "public", zone = "us-east-1a", cidr = "10.0.0.0/24" }
    workers = { role = "public", zone = "us-east-1a", cidr = "10.0.16.0/20", pool = "workers" }
  }
}

module "shard" {
  source              = "../../aws/shard"
  cluster_id          = module.cluster.id
  bucket              = module.cluster.bucket
  encryption_key_arn  = module.cluster.encryption_key_arn
  server_profile_name = module.account.server_profile_name
  agent_profile_name  = module.account.agent_profile_name
  shard               = "us-east-1a"
  subnet              = module.network.subnets["servers"]

  server_package = var.release
  agent_packages = { arm64 = var.release }
  operator_cidrs = ["10.0.0.0/16"]

  subnet_pools = module.network.subnet_pools["us-east-1a"]
  templates    = { web = { kind = "web", instance_type = "t4g.small", subnet_pool = "workers" } }
  groups       = { default = { web = { template = "web", size = 3 } } }
}

output "operator_addr" {
  value       = module.shard.operator_addr
  description = "Address at which nstance-admin reaches the leader."
}
