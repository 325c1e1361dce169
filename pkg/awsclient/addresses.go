package awsclient

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// mostAddresses bounds a list of addresses in bytes: an interface has at most 50 of each
// family, of at most 39 bytes each.
const mostAddresses = 4096

// Addresses returns the private IPv4 and IPv6 addresses of the network interface with MAC
// address mac from the metadata service; none if this instance has no such interface. client
// makes the calls; nil: the SDK's default. See
// docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html, categories
// network/interfaces/macs.
func Addresses(ctx context.Context, client *http.Client, mac string) ([]netip.Addr, error) {
	service, all := newMetadata(client), []netip.Addr(nil)
	for _, list := range []string{"local-ipv4s", "ipv6s"} {
		some, err := addressesAt(ctx, service, "network/interfaces/macs/"+mac+"/"+list)
		if err != nil {
			return nil, fmt.Errorf("get the addresses of network interface %s from the metadata service: %w", mac, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// addressesAt reads one list, which is missing if it would be empty.
func addressesAt(ctx context.Context, service *imds.Client, path string) (all []netip.Addr, err error) {
	text, err := readMetadata(ctx, service, path, mostAddresses+1)
	if _, status := Code(err); status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(text) > mostAddresses {
		return nil, fmt.Errorf("%s is longer than %d bytes: want one address per line", path, mostAddresses)
	}
	for line := range strings.FieldsSeq(text) {
		addr, err := netip.ParseAddr(line)
		if err != nil || addr.Zone() != "" {
			return nil, fmt.Errorf("%s has %.80q: want one address per line", path, line)
		}
		all = append(all, addr)
	}
	return all, nil
}
