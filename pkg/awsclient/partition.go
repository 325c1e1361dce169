package awsclient

import "regexp"

// Partition is a part of AWS with names of its own.
type Partition struct {
	ID        string // as in ARNs
	Suffix    string // of the hosts of its services
	DualStack string // of those that have addresses of IPv6 too; S3 has it otherwise
	regions   *regexp.Regexp
}

// partitions are those of docs.aws.amazon.com/general/latest/gr/rande.html and of the SDKs.
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

// PartitionOf returns the partition that has a region, by the region's name; ok is false if
// none has such names.
func PartitionOf(region string) (p Partition, ok bool) {
	for _, p := range partitions() {
		if p.regions.MatchString(region) {
			return p, true
		}
	}
	return Partition{}, false
}
