// Package manual tests generated files with the programs that read them: manual pages with mandoc,
// completion with real shells, and the schema of the job file with jsonschema. Tests in
// cmd/ddpbatch check that the reference is current.
package manual
