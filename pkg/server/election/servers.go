package election

import (
	"encoding/json"
	"fmt"
)

// maxServersBytes bounds the names and addresses of servers in a record: half of what it may have.
const maxServersBytes = maxRecordBytes / 2

// recordServers is a record as stored. No election depends on the servers, so Record lacks them.
type recordServers struct {
	recordJSON
	Servers []string `json:"servers,omitempty"`
}

// body returns a record to store, with as many of the servers as it has room for.
func (e *Elector) body(r Record) ([]byte, error) {
	stored := recordServers{recordJSON: r.toJSON()}
	if e.cfg.Servers != nil {
		stored.Servers = fitting(e.cfg.Servers())
	}
	return json.Marshal(stored)
}

func fitting(hosts []string) []string {
	const around = len(`"",`)
	room := maxServersBytes
	for n, host := range hosts {
		if room -= len(host) + around; room < 0 {
			return hosts[:n]
		}
	}
	return hosts
}

// ParseServers returns the names and addresses of servers in a stored record, unchecked: those
// that its holder knew when it wrote the record.
func ParseServers(b []byte) ([]string, error) {
	var stored struct {
		Servers []string `json:"servers"`
	}
	if err := parseOne(b, &stored); err != nil {
		return nil, fmt.Errorf("parse the servers of an election record: %w", err)
	}
	return stored.Servers, nil
}
