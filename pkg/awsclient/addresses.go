package awsclient

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

// mostAddresses is how many bytes a list of addresses may have: an interface has at most
// 50 of each family, of at most 39 bytes each.
const mostAddresses = 4096

// Addresses asks the metadata service which private addresses of IPv4, and which of
// IPv6, the network interface with the address of hardware mac has on this instance: none
// when it is none of this instance's. client makes the calls; nil: the SDK's own. The
// protocol is that of
// docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-metadata.html, categories
// network/interfaces/macs.
func Addresses(ctx context.Context, client *http.Client, mac string) ([]netip.Addr, error) {
	service, all := newMetadata(client), []netip.Addr(nil)
	for _, list := range []string{"local-ipv4s", "ipv6s"} {
		some, err := addressesAt(ctx, service, "network/interfaces/macs/"+mac+"/"+list)
		if err != nil {
			return nil, fmt.Errorf("ask the metadata service for the addresses of network interface %s: %w", mac, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// addressesAt reads one list, which is not there when it would be empty.
func addressesAt(ctx context.Context, service *imds.Client, path string) (all []netip.Addr, err error) {
	text, err := readMetadata(ctx, service, path, mostAddresses+1)
	if _, status := Code(err); status == http.StatusNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(text) > mostAddresses {
		return nil, fmt.Errorf("%s is longer than %d bytes: want one address in each line", path, mostAddresses)
	}
	for line := range strings.FieldsSeq(text) {
		addr, err := netip.ParseAddr(line)
		if err != nil || addr.Zone() != "" {
			return nil, fmt.Errorf("%s has %.80q: want one address in each line", path, line)
		}
		all = append(all, addr)
	}
	return all, nil
}
