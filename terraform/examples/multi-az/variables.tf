variable "region" {
  type        = string
  description = "Region of the cluster."
  default     = "eu-central-1"
}

variable "releases" {
  type        = map(object({ url = string, sha256 = string }))
  description = "The archives `nstance_{version}_linux_{arch}.tar.gz`, by architecture: their URLs and their SHA-256."
}

variable "operator_cidrs" {
  type        = list(string)
  description = "Address ranges from which operators and `nstance-admin` can reach the shards."
  default     = ["10.0.0.0/8"]
}
