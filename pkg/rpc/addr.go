package rpc

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

const (
	maxAddrs      = 64
	maxHostLength = 253 // RFC 1035, section 2.3.4, written out without the root dot
	addrRule      = `want host:port, such as "10.0.0.1:9000", "[fd00::1]:9000" or "nstance.internal:9000"`
)

// ParseAddrs parses a comma-separated list of host:port addresses to dial. Spaces around an
// address are ignored and duplicates are dropped. The error starts with field, the user's name
// for the list, and quotes the wrong address.
func ParseAddrs(field, list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, fmt.Errorf("%s: no address given: %s, separated by commas", field, addrRule)
	}
	parts := strings.Split(list, ",")
	if len(parts) > maxAddrs {
		return nil, fmt.Errorf("%s: %d addresses given: want at most %d", field, len(parts), maxAddrs)
	}
	addrs := make([]string, 0, len(parts))
	seen := make(map[string]bool, len(parts))
	for _, part := range parts {
		if strings.TrimSpace(part) == "" {
			return nil, fmt.Errorf("%s: there is an empty address in %.120q: remove the separator beside it", field, list)
		}
		addr, err := ParseAddr(part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		if !seen[addr] {
			seen[addr] = true
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// ParseAddr checks one host:port address to dial, with neither part empty, and returns its
// canonical form.
func ParseAddr(s string) (string, error) {
	host, port, err := splitAddr(s)
	if err == nil && (host == "" || port == 0) {
		err = fmt.Errorf("%.80q is not an address to connect to: %s", s, addrRule)
	}
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

// ParseListenAddr checks one address to listen on. Unlike in an address to dial, the host may
// be empty (all interfaces) and the port 0 (any free port).
func ParseListenAddr(s string) (string, error) {
	host, port, err := splitAddr(s)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

func splitAddr(s string) (host string, port uint16, err error) {
	host, portText, err := net.SplitHostPort(strings.TrimSpace(s))
	if err != nil {
		return "", 0, fmt.Errorf("%.80q is not an address: %s", s, addrRule)
	}
	n, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("%.80q has no valid port: want a number from 1 to 65535", s)
	}
	if ip, err := netip.ParseAddr(host); err == nil && validHost(strings.ToLower(ip.Zone())) {
		return ip.String(), uint16(n), nil
	}
	host = strings.ToLower(host)
	if !validHost(host) {
		return "", 0, fmt.Errorf("%.80q has no valid host: want a DNS name or an IP address", s)
	}
	return host, uint16(n), nil
}

// validHost accepts names that can be looked up: labels of letters, digits, hyphens and,
// because container networks use them, underscores.
func validHost(host string) bool {
	if host == "" {
		return true
	}
	if len(host) > maxHostLength {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		if strings.Trim(label, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return false
		}
	}
	return true
}
