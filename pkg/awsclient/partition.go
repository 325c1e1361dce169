package awsclient

import "regexp"

// Partition is an AWS partition.
type Partition struct {
	ID        string // as in ARNs
	Suffix    string // DNS suffix of its services
	DualStack string // DNS suffix of its dual-stack services, except S3
	regions   *regexp.Regexp
}

// partitions returns the partitions, from docs.aws.amazon.com/general/latest/gr/rande.html and
// the SDKs.
func partitions() []Partition {
	return []Partition{
		{"aws", "amazonaws.com", "api.aws", regexp.MustCompile(`^(us|eu|ap|sa|ca|me|af|il|mx)-[a-z]+-[0-9]+$`)},
		{"aws-cn", "amazonaws.com.cn", "api.amazonwebservices.com.cn", regexp.MustCompile(`^cn-[a-z]+-[0-9]+$`)},
		{"aws-eusc", "amazonaws.eu", "api.amazonwebservices.eu", regexp.MustCompile(`^eusc-[a-z]+-[a-z]+-[0-9]+$`)},
		{"aws-iso", "c2s.ic.gov", "api.aws.ic.gov", regexp.MustCompile(`^us-iso-[a-z]+-[0-9]+$`)},
		{"aws-iso-b", "sc2s.sgov.gov", "api.aws.scloud", regexp.MustCompile(`^us-isob-[a-z]+-[0-9]+$`)},
		{"aws-iso-e", "cloud.adc-e.uk", "api.cloud-aws.adc-e.uk", regexp.MustCompile(`^eu-isoe-[a-z]+-[0-9]+$`)},
		{"aws-iso-f", "csp.hci.ic.gov", "api.aws.hci.ic.gov", regexp.MustCompile(`^us-isof-[a-z]+-[0-9]+$`)},
		{"aws-us-gov", "amazonaws.com", "api.aws", regexp.MustCompile(`^us-gov-[a-z]+-[0-9]+$`)},
	}
}

// PartitionOf returns the partition of a region by the region's name; ok is false if it is
// unknown.
func PartitionOf(region string) (p Partition, ok bool) {
	for _, p := range partitions() {
		if p.regions.MatchString(region) {
			return p, true
		}
	}
	return Partition{}, false
}
