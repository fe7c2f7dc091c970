"""Settings: URL, keywords, environment, configuration file and Hadoop mapping, turned into a
VolumeConfig."""

from s3k_async.settings.config_file import ConfigFile, config_path, read_config, save_volume
from s3k_async.settings.hadoop_mapping import HadoopSettings, read_hadoop
from s3k_async.settings.locations import name_of_directory, split_url
from s3k_async.settings.options import OPTIONS, Option
from s3k_async.settings.resolution import (
    local_alerts,
    local_service,
    local_table,
    local_tuning,
    resolve,
)
from s3k_async.settings.secrets import with_local_secrets

__all__ = [
    "OPTIONS",
    "ConfigFile",
    "HadoopSettings",
    "Option",
    "config_path",
    "local_alerts",
    "local_service",
    "local_table",
    "local_tuning",
    "name_of_directory",
    "read_config",
    "read_hadoop",
    "resolve",
    "save_volume",
    "split_url",
    "with_local_secrets",
]
